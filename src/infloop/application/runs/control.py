"""Start, cancel, resume and rewind runs."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from infloop.application.isolation import describe_isolation
from infloop.application.runs.models import (
    ACTIVE,
    FINISHED,
    Cancellation,
    DirectoryRestore,
    QueuedState,
    Recovery,
    RewindPlan,
    RunPromise,
    StartedRun,
)
from infloop.application.runs.workflow_file import changed_file, definition_of
from infloop.errors import Conflict, Forbidden, NotFound, UsageError
from infloop.model.events import Cause, RepositoryRef
from infloop.model.problems import short_repr
from infloop.model.repository_address import HEAD
from infloop.runtime.runs.run_status import current_status
from infloop.store.interfaces.queue import QueueEntry

if TYPE_CHECKING:
    from infloop.application.caller import Caller, Surface
    from infloop.application.resources import Resources
    from infloop.application.runs.history import RunHistory
    from infloop.application.runs.queue import RunQueue
    from infloop.catalog import Bundle
    from infloop.model.audit import EventName
    from infloop.model.values import JsonObject, JsonValue
    from infloop.store.interfaces.run_log import RunRow

PRIORITY = 10
"""Somebody waits for these runs, so they overtake those of triggers."""

_STOP_REASONS: dict[Surface, str] = {
    "cli": "stopped by `infloop cancel`",
    "api": "stopped through the API",
    "mcp": "stopped over MCP",
}


class Runs:
    """What can be done with runs. Each use case is audited before it takes effect."""

    def __init__(self, resources: Resources, history: RunHistory, queue: RunQueue) -> None:
        self._resources = resources
        self._history = history
        self._queue = queue

    # -- cancelling --------------------------------------------------------------------------

    async def cancel(self, run_id: str, caller: Caller) -> Cancellation:
        """Stop a run, whichever process drives it; one that waits leaves the queue.

        A run that paused, or whose process died, is settled here. Raises Conflict when there is
        nothing to stop.
        """
        found = await self._history.find_row_or_entry(run_id)
        if isinstance(found, QueueEntry):
            return await self._cancel_queued(found, caller)
        status = await current_status(found, self._resources.store.liveness)
        if status in FINISHED:
            raise Conflict(
                f"run {run_id!r} is over ({status}); there is nothing to stop", "finished"
            )
        await self._record("run.stopped", found, caller)
        reason = _STOP_REASONS[caller.surface]
        if status in ACTIVE:
            await self._request_stop(run_id, reason)
            settled = None
        else:
            service = await self._resources.service()
            try:
                settled = (await service.cancel_undriven(run_id, reason)).status
            except UsageError as error:
                raise Conflict(str(error), "cannot-cancel") from None
        return Cancellation(
            run_id=run_id,
            correlation_id=caller.correlation_id or found.correlation_id,
            status=settled or "stopping",
            before=status,
        )

    async def cancel_latest(self, caller: Caller, run_id: str | None = None) -> None:
        """Stop this run; without an id, the latest live one, if there is one."""
        chosen = run_id or next(reversed(self._history.live_runs()), None)
        if chosen is not None:
            await self.cancel(chosen, caller)

    async def _cancel_queued(self, entry: QueueEntry, caller: Caller) -> Cancellation:
        try:
            await self._queue.remove(entry.run.id, caller)
        except NotFound:
            raise Conflict(
                f"run {entry.run.run_id!r} does not wait any more", "not-waiting"
            ) from None
        return Cancellation(
            run_id=entry.run.run_id,
            correlation_id=caller.correlation_id or entry.run.correlation_id,
            status="removed",
            before="queued",
        )

    async def _request_stop(self, run_id: str, reason: str) -> None:
        service = self._resources.driving()
        if service is not None:
            await service.stop(run_id, reason)
        else:
            now = self._resources.clock.now_ms()
            await self._resources.store.liveness.request_stop(run_id, reason, now)

    # -- resuming and rewinding --------------------------------------------------------------

    async def resume(
        self,
        run_id: str,
        caller: Caller,
        *,
        take_over: bool = False,
        max_cost_usd: float | None = None,
    ) -> StartedRun:
        """Go on with a run that paused or whose process died; no finished step runs again.

        With `max_cost_usd` the run may spend that much in all, within what the operator allows.
        """
        row = await self._resources.store.run_log.run(run_id)
        changed = await changed_file(self._resources, run_id)
        await self._record("run.resumed", row, caller)
        service = await self._resources.service()
        try:
            await service.resume(run_id, take_over=take_over, max_cost_usd=max_cost_usd)
        except UsageError as error:
            raise Conflict(str(error), "cannot-resume") from None
        return StartedRun(
            run_id=run_id,
            correlation_id=caller.correlation_id or row.correlation_id,
            after_seq=row.last_seq,
            workflow_file=changed or UNSET,
        )

    async def plan_rewind(
        self, run_id: str, step: str, workflow: Bundle | None = None
    ) -> RewindPlan:
        """Return what a rewind to `step` would keep, run again, and change in directories.

        Raises UsageError if the run cannot go on from there with `workflow`.
        """
        from infloop.application.runs.file_changes import file_changes
        from infloop.application.runs.rewound_steps import rewound_steps

        definition = definition_of(workflow) if workflow else None
        plan = await (await self._resources.service()).plan_rewind(run_id, step, definition)
        changed = None if workflow else await changed_file(self._resources, run_id)
        kept, again = await rewound_steps(self._resources.store.run_log, run_id, step)
        return RewindPlan(
            run_id=run_id,
            step=step,
            kept=kept,
            again=again,
            workflow_file=changed or UNSET,
            directories=[
                DirectoryRestore(
                    directory=each.directory,
                    files=None if each.changes is None else file_changes(each.changes),
                )
                for each in plan
            ],
        )

    async def rewind(
        self,
        run_id: str,
        step: str,
        caller: Caller,
        *,
        workflow: Bundle | None = None,
        current: bool = False,
    ) -> StartedRun:
        """Start a new run from a step of this one, with the files as they were then.

        It goes on with `workflow`, or with the `current` version of its own, if everything before
        the step is the same there.
        """
        from infloop.runtime.runs.rewinding import NewVersion

        row = await self._resources.store.run_log.run(run_id)
        if current and workflow is None:
            workflow = await asyncio.to_thread(self._bundle, row.workflow_id)
        version = NewVersion(definition_of(workflow), _source(workflow)) if workflow else None
        changed = None if workflow else await changed_file(self._resources, run_id)
        file: dict[str, JsonValue] = {"workflow": version.file} if version else {}
        await self._record("run.rewound", row, caller, step=step, **file)
        service = await self._resources.service()
        try:
            seq = await service.find_step(run_id, step)
            new = await service.rewind(run_id, step, version)
        except UsageError as error:
            raise Conflict(str(error), "cannot-rewind") from None
        return StartedRun(
            run_id=new,
            correlation_id=caller.correlation_id or row.correlation_id,
            after_seq=seq - 1,
            workflow_file=changed or UNSET,
        )

    # -- after a crash -----------------------------------------------------------------------

    async def recover(self) -> Recovery:
        """Settle what dead processes left behind: runs, children, worktrees.

        Runs whose workflow asks to be resumed are returned as `resumable`; all others are recorded
        as failed.
        """
        found = await (await self._resources.service()).recover()
        return Recovery(failed=found.failed, resumable=found.resumable, messages=found.messages)

    async def isolation(self) -> str:
        """Say how children run, and which settings change that."""
        return describe_isolation(*(await self._resources.service()).isolation)

    # -- starting ----------------------------------------------------------------------------

    async def start(
        self,
        workflow: Bundle,
        inputs: JsonObject,
        caller: Caller,
        *,
        directory: str,
        untrusted: tuple[str, ...] = (),
        repository: str = "",
        ref: str = "",
    ) -> StartedRun:
        """Start a run that this process drives; it is durable when this returns.

        Only the command line does this. Other surfaces use the queue. `untrusted` names the inputs
        that come from outside. With `repository` and `ref` it works there instead of in the
        repository that the workflow names, or in `directory`.
        """
        if caller.surface != "cli":
            raise Forbidden(f"runs over {caller.surface!r} are started through the queue")
        service = await self._resources.service()
        correlation_id = caller.correlation_id or f"cid_{secrets.token_hex(16)}"
        run_id = await service.start(
            definition_of(workflow),
            inputs,
            workdir=directory,
            cause=Cause("cli", _source(workflow), untrusted=untrusted),
            correlation_id=correlation_id,
            source=_source_repository(workflow, repository, ref),
        )
        return StartedRun(run_id=run_id, correlation_id=correlation_id, after_seq=0)

    async def enqueue(
        self,
        workflow_id: str,
        inputs: JsonObject,
        caller: Caller,
        *,
        directory: str | None = None,
        idempotency_key: str = "",
    ) -> RunPromise:
        """Put a run of a workflow into the queue.

        A key that was used within a day returns the first promise. What an MCP client gives counts
        as untrusted, as a webhook's values do.
        """
        from infloop.application.workflows import refuse_large_inputs, refuse_unknown_inputs
        from infloop.model.references import workflow_inputs
        from infloop.runtime.runs.dispatch import RunRequest

        service = await self._resources.service()
        await service.check_resources()
        bundle = await asyncio.to_thread(self._bundle, workflow_id)
        if caller.surface == "mcp":
            refuse_unknown_inputs(bundle.root, inputs)
            refuse_large_inputs(inputs)
        filled = workflow_inputs(bundle.root, inputs)
        cause, trigger_id = Cause("api", caller.actor.kind), ""
        if caller.surface == "mcp":
            given = tuple(name for name in filled if name in inputs)
            cause = Cause("mcp", caller.transport, untrusted=given)
            trigger_id = f"mcp_{self._resources.clock.now_ms()}_{secrets.token_hex(4)}"
        workdir = await asyncio.to_thread(self._directory, directory)
        wanted = RunRequest(
            workflow_id=workflow_id,
            inputs=filled,
            cause=cause,
            workdir=workdir,
            is_default_workdir=directory is None,
            correlation_id=caller.correlation_id,
            trigger_id=trigger_id,
            workflow_name=bundle.root.name,
            priority=PRIORITY,
            key=f"api:{workflow_id}:{idempotency_key}" if idempotency_key else "",
        )
        await self._queue.check(wanted)
        await self._resources.audit().record(
            "run.queued",
            caller.actor,
            correlation_id=caller.correlation_id,
            workflow_id=workflow_id,
            details={"via": caller.surface},
        )
        added = await self._queue.add(wanted)
        return RunPromise(
            run_id=added.run_id,
            queue_id=added.id,
            position=added.position,
            workflow_id=workflow_id,
            trigger_id=trigger_id,
            correlation_id=caller.correlation_id,
            state=QueuedState(
                run_id=added.run_id,
                workflow_id=workflow_id,
                iteration_by_loop_id={},
                scope={"inputs": filled},
                events=[],
            ),
        )

    def _bundle(self, workflow_id: str) -> Bundle:
        """Return a checked workflow by its id: never by a path, whatever the id looks like."""
        from infloop.catalog.workflows import is_workflow_id

        if not is_workflow_id(workflow_id):
            raise NotFound(f"there is no workflow {short_repr(workflow_id)}")
        folders = self._resources.folders
        try:
            folders.workflows.find(workflow_id)
        except UsageError as error:
            raise NotFound(str(error)) from None
        return folders.workflows.load_bundle(workflow_id, known_providers=folders.known_providers())

    def _directory(self, chosen: str | None) -> str:

        if chosen is None:
            return str(self._resources.folders.workdir)
        path = Path(chosen)
        if not path.is_absolute() or not path.is_dir():
            raise UsageError(f"cwd {short_repr(chosen)} is not the full path of a directory")
        return str(path)  # links are resolved when the run begins

    # -- audit -------------------------------------------------------------------------------

    async def _record(
        self, event: EventName, run: RunRow, caller: Caller, **details: JsonValue
    ) -> None:
        """Record what is about to be done; raise AuditError, so that it is not done."""
        await self._resources.audit().record(
            event,
            caller.actor,
            correlation_id=caller.correlation_id or run.correlation_id,
            run_id=run.id,
            workflow_id=run.workflow_id,
            details=details,
        )


def _source_repository(workflow: Bundle, repository: str, ref: str) -> RepositoryRef | None:
    """Return the repository that a person chose; None if they left it to the workflow."""
    named = workflow.root.workspace
    if not repository and not ref:
        return None
    if not repository and named is None:
        raise UsageError("--ref needs a repository: the workflow names none, and no --repository")
    return RepositoryRef(repository or (named.repository if named else ""), ref or HEAD)


def _source(workflow: Bundle) -> str:
    """Return the full path of a workflow's file, or what stands for it."""
    source = workflow.source
    return str(source.absolute() if source.exists() else source)
