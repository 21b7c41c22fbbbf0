"""Starts a run: checks it, makes it durable, and drives it."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING

from infloop.errors import StoreError
from infloop.model.audit import SYSTEM, Actor
from infloop.model.events import Cause, Recorded, RunStarted
from infloop.policy.budget import merge_limits
from infloop.runtime.runs.admission import workspace_of
from infloop.runtime.runs.definitions import PreparedDefinition, prepare
from infloop.runtime.runs.live_runs import RunLaunch
from infloop.runtime.runs.opening import open_run
from infloop.runtime.runs.shared import run_workspace
from infloop.runtime.timeline import WorkspaceHistory
from infloop.store.interfaces.run_log import NewRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import Protocol

    from infloop.engine.graph import Definition
    from infloop.model.events import RepositoryRef
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.admission import Admission
    from infloop.runtime.runs.live_runs import LiveRuns
    from infloop.runtime.runs.shared import SharedResources

    class CreateRun(Protocol):
        """Makes a run durable with its first events, as `RunLog.create_run` does."""

        def __call__(
            self,
            run: NewRun,
            first: Recorded,
            rest: Sequence[Recorded],
            *,
            scope: JsonObject | None,
        ) -> Awaitable[int]:
            """Return the epoch of the run."""


def new_correlation_id() -> str:
    return f"cid_{secrets.token_hex(16)}"


class RunStarter:
    """Starts runs in this process."""

    def __init__(self, shared: SharedResources, admission: Admission, live: LiveRuns) -> None:
        self._shared = shared
        self._admission = admission
        self._live = live

    async def start(
        self,
        definition: Definition | PreparedDefinition,
        inputs: JsonObject,
        *,
        workdir: str,
        cause: Cause,
        run_id: str,
        correlation_id: str,
        create: CreateRun | None,
        source: RepositoryRef | None = None,
    ) -> str:
        """Start a run; see `RunService.start`."""
        await self._admission.check_resources()
        known = definition if isinstance(definition, PreparedDefinition) else prepare(definition)
        workflow = known.workflow
        source = source or workspace_of(workflow)
        directory = None
        if source is None:
            workdir, directory = await self._admission.enter(workdir)
        else:
            source, workdir = self._admission.check_workspace(source), ""
        self._admission.check_confinement(known, cause)
        run_id = run_id or str(uuid.uuid4())
        history = WorkspaceHistory(source) if source else None
        workspace = run_workspace(self._shared, run_id, history)
        fence = self._admission.fence(run_id, workflow, workspace, cause)
        now = self._shared.clock.now_ms()
        event = RunStarted(
            workflow_id=known.root,
            workflow_name=str(workflow["name"]),
            definition=known.hash,
            inputs=inputs,
            workdir=workdir,
            limits=merge_limits(self._shared.dependencies.limits, workflow),
            cause=cause,
            isolation=fence.isolation,
            egress=fence.egress,
            directory=directory,
            workspace=source,
        )
        new = NewRun(
            id=run_id,
            workflow_id=known.root,
            workflow_name=event.workflow_name,
            definition=known.data,
            owner=self._shared.instance.id,
            started_at=now,
            correlation_id=correlation_id or new_correlation_id(),
            cause=cause,
        )
        first = Recorded(run_id, 1, now, new.correlation_id, event)
        actor = Actor("cli") if cause.kind == "cli" else SYSTEM
        await self._shared.audit.record("run.started", new, actor=actor)
        # Nothing of a new run is open yet, except a checkout of its own.
        opening = open_run(
            known.program, first, event, self._shared.clock, may_finish=source is None
        )
        create = create or self._shared.store.run_log.create_run
        try:
            epoch = await create(new, first, opening.events[1:], scope=opening.scope)
        except StoreError:  # it may have been stored all the same
            self._shared.dropped.add(run_id)
            raise
        if opening.finished is not None:
            self._live.conclude(new, opening.events, opening.finished)
            return run_id
        self._live.launch(
            RunLaunch(
                program=known.program,
                state=opening.state,
                commands=opening.commands,
                started=event,
                first=first,
                rest=opening.events[1:],
                epoch=epoch,
                workspace=workspace,
                fence=fence,
            )
        )
        return run_id
