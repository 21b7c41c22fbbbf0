"""The runs that this process drives: builds their parts, drives them, and ends them."""

from __future__ import annotations

import asyncio
import logging
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import Fenced
from infloop.runtime.runs.feed import Feed
from infloop.runtime.runs.loop import RunLoop
from infloop.runtime.runs.recorder import Recorder
from infloop.runtime.runs.retention import Retention
from infloop.runtime.runs.run_status import is_known

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from infloop.engine.commands import Command, Perform
    from infloop.engine.graph import Program
    from infloop.engine.state import State
    from infloop.model.events import Recorded, RunFinished, RunStarted
    from infloop.nodes.base import Outcome, WriteOutput
    from infloop.runtime.confinement.disk_reserve import RunDisks
    from infloop.runtime.confinement.fence import RunFence
    from infloop.runtime.run_audit import AuditedRun
    from infloop.runtime.runs.loop import Performer
    from infloop.runtime.runs.shared import SharedResources
    from infloop.runtime.runs.step_powers import RunPowers
    from infloop.runtime.workspaces import RunWorkspace


_log = logging.getLogger("infloop.runs")


class RunLaunch(msgspec.Struct, frozen=True):
    """A run whose first events in this process are durable, ready to be driven.

    `first` and `rest` are these events, and `commands` is what follows from them. `perform`
    replaces what performs steps.
    """

    program: Program
    state: State
    commands: Sequence[Command]
    started: RunStarted
    first: Recorded
    epoch: int
    workspace: RunWorkspace | None
    fence: RunFence
    perform: Performer | None = None
    rest: Sequence[Recorded] = ()


class LiveRun(msgspec.Struct):
    """A run that this process drives."""

    id: str
    workflow_id: str
    correlation_id: str
    loop: RunLoop
    feed: Feed
    disks: RunDisks
    finished: asyncio.Future[RunFinished]
    task: asyncio.Task[None] | None = None
    is_lost: bool = False


class LiveRuns:
    """All runs that this process drives, oldest first."""

    def __init__(self, shared: SharedResources) -> None:
        self._shared = shared
        self._runs: dict[str, LiveRun] = {}
        self._end_callbacks: list[Callable[[], None]] = []
        self._retention = Retention(
            shared.store.run_log, shared.dependencies.history_limit, self._drop_snapshots
        )

    def __iter__(self) -> Iterator[LiveRun]:
        return iter(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, run_id: str) -> LiveRun | None:
        return self._runs.get(run_id)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever a run has ended."""
        self._end_callbacks.append(callback)

    def fail(self, run_id: str, error: BaseException) -> None:
        """End the loop of a run whose journal takes no more events of this process.

        The children of its steps end. If another process owns the run, nothing else changes: its
        questions wait for the new owner.
        """
        live = self._runs.get(run_id)
        if live is None:
            return
        if isinstance(error, Fenced):
            approvals = self._shared.dependencies.approvals
            if approvals is not None:
                approvals.keep_open_for(run_id)
            if not live.is_lost:
                _log.warning(
                    "run %s belongs to another process now: its steps here are ended, and nothing "
                    "more of it is written",
                    run_id,
                )
            live.is_lost = True
        live.loop.fail(error)

    async def lose_all(self, error: Fenced) -> None:
        """End all loops, because other processes own the runs; return when the children ended."""
        tasks = [live.task for live in self if live.task is not None]
        for live in list(self):
            self.fail(live.id, error)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancel what drives the runs. They are not settled, so they can be resumed."""
        await asyncio.sleep(0)  # what `conclude` left to do comes first
        tasks = [live.task for live in self if live.task is not None]
        for live in list(self):
            if not live.finished.done() and live.task is not None:
                live.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._retention.close()

    # -- starting ----------------------------------------------------------------------------

    def launch(self, launch: RunLaunch) -> None:
        """Start to drive a run, and publish its first event."""
        live = self._assemble(launch)
        live.finished.add_done_callback(self._call_end_callbacks)
        markers = self._shared.dependencies.markers
        if markers:
            markers.add(live.id, live.workflow_id, launch.first.time)
        live.task = asyncio.create_task(self._drive(live, launch))
        self._runs[live.id] = live
        self._expect_runs()
        live.feed.publish(launch.first)

    def conclude(self, run: AuditedRun, events: Sequence[Recorded], finished: RunFinished) -> None:
        """Publish a run that had ended when it was stored: nothing of it has to be driven.

        All but its first event follows when its starter has said that it started.
        """
        self._shared.event_bus.publish(events[0])
        asyncio.get_running_loop().call_soon(self._end, run, events[1:], finished)

    def _end(self, run: AuditedRun, events: Sequence[Recorded], finished: RunFinished) -> None:
        for item in events:
            self._shared.event_bus.publish(item)
        self._shared.audit.note("run.finished", run, outcome=finished.status)
        self._shared.notifications.run_ended(run.id, paused=finished.status == "paused")
        self._retention.run_ended(run.id, run.workflow_id)
        self._call_end_callbacks(None)

    def _assemble(self, launch: RunLaunch) -> LiveRun:
        """Build the loop, the feed and the recorder of a run."""
        shared, first, workspace = self._shared, launch.first, launch.workspace
        redactor, run_log = shared.dependencies.redactor, shared.store.run_log
        if workspace is not None and workspace.checkout is not None:
            workspace.checkout.epoch = launch.epoch

        async def close_workspace() -> None:
            if workspace is not None:
                await workspace.close(loop.post)

        loop = RunLoop(
            launch.program, launch.state, run_log, close_workspace, redactor.redact_event
        )

        async def read(after_seq: int, limit: int) -> list[Recorded]:
            await loop.recorder.durable()
            return await run_log.events(first.run_id, after_seq, limit=limit)

        bus = shared.event_bus
        feed = Feed(read, first.seq - 1, bus.publish if bus.is_used else None)
        loop.recorder = Recorder(
            run_log=run_log,
            feed=feed,
            clock=shared.clock,
            run_id=first.run_id,
            correlation_id=first.correlation_id,
            epoch=launch.epoch,
            seq=launch.rest[-1].seq if launch.rest else first.seq,
            on_failure=partial(self.fail, first.run_id),
        )
        live = LiveRun(
            id=first.run_id,
            workflow_id=launch.started.workflow_id,
            correlation_id=first.correlation_id,
            loop=loop,
            feed=feed,
            disks=launch.fence.disks,
            finished=asyncio.get_running_loop().create_future(),
        )

        @cache
        def powers() -> RunPowers:
            # Not above: a run without effects performs no step, and what steps use takes 20 ms.
            from infloop.runtime.runs.step_powers import RunPowers

            return RunPowers(shared, live, loop, launch.started.workdir, workspace, launch.fence)

        def perform_step(perform: Perform, write_output: WriteOutput) -> Awaitable[Outcome]:
            return powers().perform(perform, write_output)

        def report_leak(perform: Perform, detectors: list[str]) -> None:
            powers().report_leak(perform, detectors)

        loop.perform = launch.perform or redactor.wrap_performer(perform_step, report_leak)
        return live

    # -- driving -----------------------------------------------------------------------------

    async def _drive(self, live: LiveRun, launch: RunLaunch) -> None:
        """Drive a run to its end, then hand it over to retention."""
        dependencies = self._shared.dependencies
        try:
            for item in launch.rest:
                live.feed.publish(item)
            finished = await live.loop.drive(launch.commands)
            live.finished.set_result(finished)
            self._shared.audit.note("run.finished", live, outcome=finished.status)
            self._shared.notifications.run_ended(live.id, paused=finished.status == "paused")
            live.feed.close()
            if dependencies.homes and not finished.interrupted:  # a resumed run needs its homes
                await dependencies.homes.remove(live.id)
            self._retention.run_ended(live.id, live.workflow_id)
        except asyncio.CancelledError:
            live.finished.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (the edge of a run: `wait` raises it)
            # A home that cannot be removed is removed at the next start.
            if not live.finished.done():
                if not live.is_lost:
                    self._shared.dropped.add(live.id)
                live.finished.set_exception(error)
                live.finished.exception()  # marks it as retrieved: nobody has to wait for a run
        finally:
            live.feed.close()
            del self._runs[live.id]
            if dependencies.markers:
                dependencies.markers.remove(live.id)
            self._expect_runs()

    def _expect_runs(self) -> None:
        self._shared.store.run_log.expect_runs(len(self._runs))

    def _call_end_callbacks(self, _: object) -> None:
        for callback in self._end_callbacks:
            callback()

    async def _drop_snapshots(self) -> None:
        """Drop the snapshots of pruned runs, at most once a day."""
        workspaces = self._shared.dependencies.workspaces
        if workspaces is not None and not workspaces.dropped_lately():
            await workspaces.drop_snapshots(partial(is_known, self._shared.store.run_log))
