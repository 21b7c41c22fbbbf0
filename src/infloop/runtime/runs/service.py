"""Start, stop, resume, rewind and listen to runs.

All methods belong to one event loop. A run that this process drives is live: it has a loop, a feed
and a task. Every other run is what the journal says, and what the lock file of its process proves.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from infloop.errors import UsageError
from infloop.model.events import Cause, RunFinished
from infloop.runtime.runs import recovery
from infloop.runtime.runs.admission import Admission
from infloop.runtime.runs.following import follow
from infloop.runtime.runs.live_runs import LiveRuns
from infloop.runtime.runs.relay import Relay
from infloop.runtime.runs.resuming import RunResumer
from infloop.runtime.runs.rewinding import RunRewinder, find_step
from infloop.runtime.runs.shared import share
from infloop.runtime.runs.starting import RunStarter
from infloop.runtime.runs.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from infloop.engine.graph import Definition
    from infloop.model.clock import Clock
    from infloop.model.events import Recorded, RepositoryRef
    from infloop.model.values import JsonObject
    from infloop.policy.confinement import Confinement
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.event_bus import EventBus
    from infloop.runtime.runs.definitions import PreparedDefinition
    from infloop.runtime.runs.dependencies import RunDependencies
    from infloop.runtime.runs.loop import LiveProgress
    from infloop.runtime.runs.recovery import Recovered
    from infloop.runtime.runs.rewinding import DirectoryRestore, NewVersion
    from infloop.runtime.runs.starting import CreateRun
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.interfaces.liveness import Instance
    from infloop.store.interfaces.store import Store


class RunService:
    """Owns the live runs of this process."""

    def __init__(
        self, store: Store, instance: Instance, clock: Clock, dependencies: RunDependencies
    ) -> None:
        self.store = store
        self.instance = instance
        self._clock = clock
        self._shared = share(store, instance, clock, dependencies)
        self._live = LiveRuns(self._shared)
        self._admission = Admission(self._shared)
        self._starter = RunStarter(self._shared, self._admission, self._live)
        self._resumer = RunResumer(self._shared, self._admission, self._live)
        self._rewinder = RunRewinder(self._shared, self._admission, self._resumer)
        self._upkeep: asyncio.Task[None] | None = None
        self.relay = Relay(store, instance, self._shared.event_bus)

    async def __aenter__(self) -> Self:
        self._upkeep = asyncio.create_task(Upkeep(self._shared, self._live).run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop driving runs, without settling them: they can be resumed."""
        if self.approvals is not None:
            self.approvals.keep_open()
        await self.relay.close()
        await self._live.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        await self.settle_audit()
        await self._shared.notifications.settle()

    # -- starting ----------------------------------------------------------------------------

    async def check_resources(self) -> None:
        """Raise BudgetError or StoreError if no run may start at the moment."""
        await self._admission.check_resources()

    async def check_start(
        self, definition: PreparedDefinition, *, workdir: str, cause: Cause
    ) -> None:
        """Raise what `start` would refuse this run for now, except a used-up budget."""
        await self._admission.check_start(definition, workdir, cause)

    async def check_directory(self, workdir: str) -> None:
        """Raise GuardError if this machine has no directory at a path in which a run may work."""
        await self._admission.check_directory(workdir)

    async def start(
        self,
        definition: Definition | PreparedDefinition,
        inputs: JsonObject,
        *,
        workdir: str,
        cause: Cause | None = None,
        run_id: str = "",
        correlation_id: str = "",
        create: CreateRun | None = None,
        source: RepositoryRef | None = None,
    ) -> str:
        """Start a run; return its id once it is durable.

        A queued run already has its ids, and `create` makes it durable in its own way. With
        `source` it works in that repository instead of the one that the workflow names, or of
        `workdir`. `admission` lists the errors with which a run is refused here, in `resume` and in
        `rewind`.
        """
        return await self._starter.start(
            definition,
            inputs,
            workdir=workdir,
            cause=cause or Cause(),
            run_id=run_id,
            correlation_id=correlation_id,
            create=create,
            source=source,
        )

    async def resume(
        self, run_id: str, *, take_over: bool = False, max_cost_usd: float | None = None
    ) -> str:
        """Go on with a run that paused or whose process died; no finished step runs again.

        With `max_cost_usd` the run may spend that much in all, within what the operator allows.
        """
        await self._resumer.resume(run_id, take_over=take_over, max_cost_usd=max_cost_usd)
        return run_id

    async def plan_rewind(
        self, run_id: str, step: str, definition: Definition | None = None
    ) -> list[DirectoryRestore]:
        """Return what a rewind to `step` changes in the directories the run worked in."""
        return await self._rewinder.plan(run_id, step, definition)

    async def rewind(self, run_id: str, step: str, version: NewVersion | None = None) -> str:
        """Start a new run that has everything before `step` in common with `run_id`.

        The files in the directories that the run worked in become what they were then. The current
        files are saved first; the new run's record names their snapshot. With `version` the new run
        goes on with other workflows. Raises UsageError if their past is not the same.
        """
        return await self._rewinder.rewind(run_id, step, version)

    async def find_step(self, run_id: str, step: str) -> int:
        """Return the sequence number at which a step, or a round such as `loop-1[3]`, began."""
        return await find_step(self.store.run_log, run_id, step)

    async def recover(self) -> Recovered:
        """Settle what dead processes left behind; see `recovery`."""
        return await recovery.recover(self._shared)

    # -- stopping ----------------------------------------------------------------------------

    async def stop(self, run_id: str, reason: str) -> None:
        """Ask for a run to be cancelled, whichever process drives it."""
        live = self._live.get(run_id)
        if live is not None:
            live.loop.stop(reason)
        else:
            await self.store.liveness.request_stop(run_id, reason, self._clock.now_ms())

    async def cancel_undriven(self, run_id: str, reason: str) -> RunFinished:
        """Settle a run as cancelled that paused or whose process died; none of its steps begins.

        Return how the run ended. If it had ended and only the record of that is missing, it keeps
        that end.
        """
        await self._resumer.cancel(run_id, reason)
        return await self.wait(run_id)

    async def settle_audit(self) -> None:
        """Return when everything about runs so far is in the audit log."""
        await self._shared.audit.settle()

    # -- looking -----------------------------------------------------------------------------

    def live(self) -> dict[str, str]:
        """Return the runs that this process drives, oldest first, each with its workflow."""
        return {live.id: live.workflow_id for live in self._live if not live.finished.done()}

    def dropped(self) -> set[str]:
        """Return the runs that this process may own and does not drive: the store failed."""
        return set(self._shared.dropped)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever a run that this process drives has ended."""
        self._live.on_end(callback)

    def progress(self, run_id: str) -> LiveProgress | None:
        """Return where a live run is; None if this process does not drive it."""
        live = self._live.get(run_id)
        return live.loop.progress() if live is not None else None

    async def wait(self, run_id: str) -> RunFinished:
        """Return how a run finished, once it has."""
        live = self._live.get(run_id)
        if live is not None:
            return await asyncio.shield(live.finished)
        row = await self.store.run_log.run(run_id)
        if row.status == "running":
            raise UsageError(f"run {run_id!r} is not running in this process")
        return RunFinished(row.status, row.error, row.failed_step)

    def listen(self, run_id: str, after_seq: int = 0) -> AsyncGenerator[list[Recorded]]:
        """Yield a run's events and output after `after_seq`, in batches, until it ends."""
        live = self._live.get(run_id)
        return live.feed.listen(after_seq) if live else follow(self.store, run_id, after_seq)

    @property
    def event_bus(self) -> EventBus:
        """What happens in all runs of this process, and in the queue."""
        return self._shared.event_bus

    @property
    def confinement(self) -> Confinement:
        """The level at which children run."""
        return self._admission.confinement

    @property
    def isolation(self) -> tuple[str, int | None]:
        """The level of children, and their uid where it is not ours."""
        dependencies = self._shared.dependencies
        user = dependencies.service_user
        return dependencies.sandbox.level, user[0] if user else None

    @property
    def approvals(self) -> Approvals | None:
        """What waits for a person, if anybody is asked."""
        return self._shared.dependencies.approvals

    @property
    def leaks(self) -> LeakGuard:
        """What finds the secrets of this process."""
        return self._shared.dependencies.redactor.secrets

    @property
    def workspaces(self) -> Workspaces | None:
        """Where worktrees and snapshots are, if there are any."""
        return self._shared.dependencies.workspaces
