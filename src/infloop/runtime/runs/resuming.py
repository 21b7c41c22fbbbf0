"""Continues runs from their journal: resume, cancel without driving, go on after a rewind."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from infloop.engine.commands import Emit, Interrupt, Perform, Wait
from infloop.engine.graph import compile_program, decode_definition
from infloop.engine.machine import advance, outstanding
from infloop.errors import InfloopError, StepError, UsageError
from infloop.model.events import Recorded, RunFinished, RunResumed, StopRequested
from infloop.policy.budget import merge_limits
from infloop.runtime.runs.admission import check_not_imported
from infloop.runtime.runs.definitions import prepare
from infloop.runtime.runs.live_runs import RunLaunch
from infloop.runtime.runs.recovery import end_orphans
from infloop.runtime.runs.replay import SEQ_GAP, first_event, rebuild_state
from infloop.runtime.runs.run_status import current_status
from infloop.runtime.runs.shared import run_workspace
from infloop.runtime.timeline import unfinished_restores, workspace_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.engine.commands import Command
    from infloop.nodes.base import Outcome, WriteOutput
    from infloop.runtime.runs.admission import Admission
    from infloop.runtime.runs.live_runs import LiveRuns
    from infloop.runtime.runs.shared import SharedResources
    from infloop.runtime.workspaces import RunWorkspace
    from infloop.store.interfaces.run_log import LoadedRun, Ownership, RunRow

_log = logging.getLogger("infloop.runs")


class RunResumer:
    """Takes over runs that no process drives."""

    def __init__(self, shared: SharedResources, admission: Admission, live: LiveRuns) -> None:
        self._shared = shared
        self._admission = admission
        self._live = live
        self._run_log = shared.store.run_log

    async def resume(self, run_id: str, *, take_over: bool, max_cost_usd: float | None) -> None:
        """Go on with a run; see `RunService.resume`."""
        await self._admission.check_resources()
        row = await self._run_log.run(run_id)
        check_not_imported(row)
        if run_id not in self._shared.dropped:
            await self._admission.check_not_driven(row, take_over=take_over)
        loaded = await self._run_log.load(run_id)
        definition = prepare(decode_definition(loaded.definition))
        state = rebuild_state(definition.program, loaded)
        if state.finished:
            raise UsageError(
                f"run {run_id!r} is over ({state.finished}); to run it again from one of its "
                f"steps, use `infloop rewind {run_id} --to STEP`"
                + (f" (it failed at {row.failed_step!r})" if row.failed_step else "")
            )
        started = await first_event(self._run_log, run_id)
        self._admission.check_confinement(definition, started.cause)
        if started.workspace:
            self._admission.check_workspace(started.workspace)
        else:
            await self._admission.enter_again(run_id, started.workdir, state.directory)
        ownership = await self._take_over(row, "resumed", force=take_over)
        await self.go_on(await self._run_log.load(run_id), ownership, max_cost_usd=max_cost_usd)

    async def cancel(self, run_id: str, reason: str) -> None:
        """Settle a run as cancelled that no process drives; see `RunService.cancel_undriven`."""
        row = await self._run_log.run(run_id)
        status = await current_status(row, self._shared.store.liveness)
        if status not in ("paused", "interrupted"):
            raise UsageError(f"run {run_id!r} is {status} now, neither paused nor interrupted")
        ownership = await self._take_over(row, "cancelled")
        stop = StopRequested(reason)
        await self.go_on(await self._run_log.load(run_id), ownership, stop=stop)

    async def end_orphans(self) -> None:
        """End the children that dead processes left running: they may work on the same files."""
        records = self._shared.dependencies.child_records
        if records:
            for line in await end_orphans(records.directory, self._shared.store.liveness):
                _log.warning("%s", line)

    async def _take_over(self, row: RunRow, outcome: str, *, force: bool = False) -> Ownership:
        """Become the owner of a run; `outcome` is audited if its process had died."""
        await self.end_orphans()
        if row.status == "running":
            await self._shared.audit.record("run.recovered", row, outcome=outcome)
        return await self._run_log.take_over(
            row.id,
            self._shared.instance.id,
            expect_dead=None if force else row.owner,
            expect_status=None if force else row.status,
            force=force,
        )

    async def go_on(
        self,
        loaded: LoadedRun,
        ownership: Ownership,
        *,
        max_cost_usd: float | None = None,
        stop: StopRequested | None = None,
        new_definition: str = "",
    ) -> None:
        """Rebuild a run's state from the journal and drive it from there, or `stop` it there.

        `new_definition` is the hash of its definition if that is another one than before.
        """
        dropped = self._shared.dropped
        dropped.discard(loaded.run.id)
        try:
            await self._go_on(loaded, ownership, max_cost_usd, stop, new_definition)
        except Exception:
            dropped.add(loaded.run.id)
            raise

    async def _go_on(
        self,
        loaded: LoadedRun,
        ownership: Ownership,
        max_cost_usd: float | None,
        stop: StopRequested | None,
        new_definition: str,
    ) -> None:
        run, shared = loaded.run, self._shared
        definition = decode_definition(loaded.definition)
        program, workflow = compile_program(definition), definition.workflows[definition.root]
        started = await first_event(self._run_log, run.id)
        workspace = await self._reopen_workspace(loaded, ownership)
        directory = None
        if not stop and not started.workspace:
            directory = await shared.workdirs.identity(started.workdir)
        now = shared.clock.now_ms()
        fence = self._admission.fence(run.id, workflow, workspace, started.cause)
        resumed = RunResumed(
            epoch=ownership.epoch,
            limits=merge_limits(shared.dependencies.limits, workflow, max_cost_usd),
            isolation=fence.isolation,
            egress=fence.egress,
            directory=directory,
            definition=new_definition,
        )
        seq = ownership.last_seq + SEQ_GAP
        first = Recorded(run.id, seq, now, run.correlation_id, resumed)
        await self._run_log.append(run.id, ownership.epoch, [first])
        state, _ = advance(program, rebuild_state(program, loaded), resumed, now)
        commands = outstanding(program, state, now)
        self._live.launch(
            RunLaunch(
                program=program,
                state=state,
                commands=_stop_commands(commands, stop) if stop else commands,
                started=started,
                first=first,
                epoch=ownership.epoch,
                workspace=workspace,
                fence=fence,
                perform=_perform_nothing if stop else None,
            )
        )

    async def _reopen_workspace(
        self, loaded: LoadedRun, ownership: Ownership
    ) -> RunWorkspace | None:
        """Finish the restores of a rewind and reopen the run's worktrees; or record a failure."""
        run, workspaces = loaded.run, self._shared.dependencies.workspaces
        if workspaces is None:
            return None
        history = await workspace_history(self._run_log, run.id)
        workspace = run_workspace(self._shared, run.id, history)
        assert workspace is not None
        try:
            for event in unfinished_restores(loaded.events):
                await workspaces.restore(run.id, event)
            await workspace.reopen()
        except (InfloopError, OSError) as error:
            reason = f"its files could not be restored: {error}"
            ended = RunFinished("failed", reason, interrupted=True)
            seq, now = ownership.last_seq + SEQ_GAP, self._shared.clock.now_ms()
            last = Recorded(run.id, seq, now, run.correlation_id, ended)
            await self._run_log.append(run.id, ownership.epoch, [last])
            self._shared.audit.note("run.finished", run, outcome=ended.status)
            self._shared.notifications.run_ended(run.id)
            raise
        return workspace


def _stop_commands(commands: Sequence[Command], stop: StopRequested) -> list[Command]:
    """Return commands that cancel a run which has `commands` left; it does not pause again."""
    left = [each for each in commands if not _is_pause(each)]
    open_steps = [each.path for each in left if isinstance(each, Perform | Wait)]
    return [*left, Emit(stop), *(Interrupt(path, stop.reason) for path in open_steps)]


def _is_pause(command: Command) -> bool:
    return (
        isinstance(command, Emit)
        and isinstance(command.event, RunFinished)
        and command.event.interrupted
    )


async def _perform_nothing(_perform: Perform, _write_output: WriteOutput) -> Outcome:
    """Fail a step of a run that is only being cancelled."""
    raise StepError("cancelled before it began")
