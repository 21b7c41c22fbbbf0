"""The application's whole API: start, stop, resume, rewind, listen.

Every surface (command line, web, MCP, triggers) calls this and nothing below it. All methods belong
to one event loop. A run that this process owns is live: it has a loop, a feed and a task. Any other
run is what the journal says, and what its owner's lock file proves.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from infloop.engine.commands import Emit, Interrupt, Perform, Wait
from infloop.engine.graph import Definition, compile_program, decode_definition
from infloop.engine.machine import advance, outstanding
from infloop.engine.state import State, decode_state
from infloop.errors import InfloopError, NotFound, StepError, UsageError, WorkflowError
from infloop.model.audit import SYSTEM, Actor
from infloop.model.events import (
    Cause,
    Recorded,
    RunFinished,
    RunResumed,
    RunStarted,
    StepPassed,
    StepStarted,
    StopRequested,
    TreeRestored,
)
from infloop.model.isolation import is_at_least
from infloop.nodes.base import Outcome
from infloop.policy.budget import merge_limits
from infloop.policy.taint import violations_message
from infloop.runtime.confinement.fence import RunFence
from infloop.runtime.confinement.workdirs import Workdirs
from infloop.runtime.event_bus import News
from infloop.runtime.run_audit import RunAudit
from infloop.runtime.runs.definitions import Definitions
from infloop.runtime.runs.feed import Feed
from infloop.runtime.runs.loop import Glance, RunLoop
from infloop.runtime.runs.recorder import Recorder
from infloop.runtime.runs.recovery import (
    Recovered,
    end_left_behind,
    is_dead,
    is_known,
    is_over,
    reconcile,
    shown_status,
)
from infloop.runtime.runs.retention import Tidying
from infloop.runtime.runs.step_powers import AllRuns, RunDoors
from infloop.runtime.spending.ledger import Ledger, abandon_dead_calls
from infloop.runtime.timeline import Moment, moments, unfinished
from infloop.store.interfaces.run_log import NewRun, Ownership

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from infloop.engine.commands import Command
    from infloop.engine.graph import Program
    from infloop.model.clock import Clock
    from infloop.model.values import JsonObject
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.confinement.disk_reserve import RunDisks
    from infloop.runtime.confinement.egress_log import Decided
    from infloop.runtime.runs.definitions import Known
    from infloop.runtime.runs.dependencies import Parts
    from infloop.runtime.runs.loop import Performer, Say
    from infloop.runtime.workspaces import RunWorkspace, Workspaces
    from infloop.store.interfaces.liveness import Instance, RunStatus
    from infloop.store.interfaces.run_log import LoadedRun, RunRow
    from infloop.store.interfaces.store import Store
    from infloop.workspace.snapshots.changes import Change

SEQ_GAP = 10_000
"""How far a resumed run skips ahead: more than an interrupted process can have shown unwritten."""


POLL_SECONDS = 0.2
BEAT_SECONDS = 5.0

_log = logging.getLogger("infloop.runs")


class GoingBack(NamedTuple):
    """What going back changes in a directory; None when the directory has to be made again."""

    directory: str
    changes: list[Change] | None


@dataclass(slots=True)
class LiveRun:
    """A run that this process drives."""

    id: str
    workflow_id: str
    correlation_id: str
    loop: RunLoop
    feed: Feed
    disks: RunDisks
    finished: asyncio.Future[RunFinished]
    task: asyncio.Task[None] | None = None


class RunService:
    """Owns the live runs of this process."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        clock: Clock,
        parts: Parts,
    ) -> None:
        self.store = store
        self.instance = instance
        self._clock = clock
        self._parts = parts
        clean = parts.leaks.known.redact
        self._ledger = Ledger(store.ledger, instance.id, clock, parts.budget, clean)
        self._live: dict[str, LiveRun] = {}
        self._audit = RunAudit(parts.audit, clock)
        self._on_end: list[Callable[[], None]] = []
        self._definitions = Definitions()
        self._tidying = Tidying(store.run_log, parts.history_limit, self._drop_forgotten)
        self._workdirs = Workdirs(store.run_log, parts.own_device, instance.row.boot_id)
        self.news = News()
        self._all_runs = AllRuns(
            parts,
            self._ledger,
            self._workdirs.lets_in,
            instance.id,
            self.news.publish,
            self._note_connections,
        )
        self._tending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._tending = asyncio.create_task(self._tend())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Take down what is still live, without settling it: it can be resumed."""
        tasks = [live.task for live in self._live.values() if live.task is not None]
        for live in list(self._live.values()):
            if not live.finished.done() and live.task is not None:
                live.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._tidying.close()
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        await self.settle_audit()

    # -- beginning ---------------------------------------------------------------------------

    async def start(
        self,
        definition: Definition,
        inputs: JsonObject,
        *,
        workdir: str,
        cause: Cause | None = None,
        run_id: str = "",
        correlation_id: str = "",
        create: Callable[[NewRun, Recorded], Awaitable[int]] | None = None,
    ) -> str:
        """Begin a run; return its id once its existence is durable.

        A run that was promised before has its ids already, and `create` makes it durable in its
        own way. Raises BudgetError, as `resume` and `rewind` do, when what may be spent is spent,
        and as they do StoreError or GuardError when too little is left on a disk, and GuardError
        when the directory is not what it was.
        """
        await self.refuse_if_spent()
        workdir, directory = await self._workdirs.enter(workdir)
        await self._parts.reserve.refuse(workdir)
        known = self._definitions.known(definition)
        root = definition.workflows[definition.root]
        self._refuse_unprovable(root)
        run_id = run_id or str(uuid.uuid4())
        correlation_id = correlation_id or f"cid_{secrets.token_hex(16)}"
        now = self._clock.now_ms()
        cause = cause or Cause()
        self._refuse_untrusted(known, cause)
        files = self._files(run_id)
        fence = self._fence(run_id, root, files, cause)
        event = RunStarted(
            definition.root,
            str(root["name"]),
            known.name,
            inputs,
            workdir,
            merge_limits(self._parts.limits, root),
            cause,
            fence.isolation,
            fence.egress,
            directory,
        )
        first = Recorded(run_id, 1, now, correlation_id, event)
        new = NewRun(
            run_id,
            definition.root,
            str(root["name"]),
            known.data,
            self.instance.id,
            now,
            correlation_id,
            cause,
        )
        epoch = await (create or self.store.run_log.create_run)(new, first)
        self._audit.note("run.started", new, actor=Actor("cli") if cause.kind == "cli" else SYSTEM)
        state, commands = advance(known.program, State(), event, now)
        live = self._go(known.program, state, commands, event, first, epoch, files, fence)
        live.feed.publish(first)
        return run_id

    @property
    def why_host(self) -> str:
        """Why children are not confined; nothing if they are, or if the operator asked for it."""
        return self._parts.why_host

    def _fence(
        self, run_id: str, root: JsonObject, files: RunWorkspace | None, cause: Cause
    ) -> RunFence:
        parts = self._parts
        outside = cause.from_outside or bool(cause.untrusted)
        rules = replace(parts.egress, enforce=parts.egress.enforce or outside)
        make_home = partial(parts.homes.make, run_id) if parts.homes else None
        in_place = files.in_place(parts.sandbox) if files else None
        return RunFence(
            parts.sandbox,
            rules,
            root,
            parts.service_user,
            make_home,
            in_place,
            parts.reserve.of_run(),
            parts.child_memory_bytes,
        )

    def _files(self, run_id: str) -> RunWorkspace | None:
        return self._parts.workspaces.of_run(run_id) if self._parts.workspaces else None

    def _refuse_unprovable(self, root: JsonObject) -> None:
        """Raise if the workflow asks for a stronger isolation than this process can give."""
        asked, given = root.get("isolation") or "auto", self._parts.sandbox.level
        if asked == "auto" or is_at_least(given, str(asked)):
            return
        why = f" ({self._parts.why_host})" if self._parts.why_host else ""
        raise WorkflowError(
            f"workflow {root['id']!r} asks for isolation {asked!r}, and children run at {given!r} "
            f"here{why}; see `infloop doctor`, or remove `isolation` from the workflow"
        )

    def _refuse_untrusted(self, known: Known, cause: Cause) -> None:
        """Raise if what somebody outside sent would reach what it must not."""
        unconfined = self._parts.why_host
        if cause.from_outside and unconfined:
            raise WorkflowError(
                "a run that somebody outside causes needs its children confined, and they are not "
                f"here: {unconfined}. INFLOOP_ISOLATION=host says that it may run as you"
            )
        found = known.violations(tuple(cause.untrusted), confined=not unconfined)
        if found:
            raise WorkflowError(violations_message(found))

    async def resume(
        self, run_id: str, *, take_over: bool = False, max_cost_usd: float | None = None
    ) -> str:
        """Go on with a run that paused or whose process is gone; no finished step runs again.

        With `max_cost_usd` it may spend that much in all, within what the operator allows.
        """
        await self.refuse_if_spent()
        row = await self.store.run_log.run(run_id)
        _refuse_imported(row)
        await self._refuse_live(row, take_over=take_over)
        loaded = await self.store.run_log.load(run_id)
        state = rebuild(compile_program(decode_definition(loaded.definition)), loaded)
        if state.finished:
            raise UsageError(
                f"run {run_id!r} has {state.finished}; to run it again from one of its steps, "
                f"use `infloop rewind {run_id} --to STEP`"
                + (f" (it failed at {row.failed_step!r})" if row.failed_step else "")
            )
        workdir = (await self._first_event(loaded)).workdir
        await self._workdirs.enter_again(run_id, workdir, state.directory)
        await self._parts.reserve.refuse(workdir)
        ownership = await self._take_over(row, "resumed", force=take_over)
        await self._continue(
            await self.store.run_log.load(run_id), ownership, max_cost_usd=max_cost_usd
        )
        return run_id

    async def cancel_undriven(self, run_id: str, reason: str) -> RunFinished:
        """Settle a run as cancelled that paused or whose process is gone; no step of it begins.

        Return how it ended: one that had come to its end, and only not recorded it, keeps that end.
        """
        row = await self.store.run_log.run(run_id)
        status = await shown_status(row, self.store.liveness)
        if status not in ("paused", "interrupted"):
            raise UsageError(f"run {run_id!r} is {status} by now: neither paused nor interrupted")
        ownership = await self._take_over(row, "cancelled")
        await self._continue(
            await self.store.run_log.load(run_id), ownership, stop=StopRequested(reason)
        )
        return await self.wait(run_id)

    async def _take_over(self, row: RunRow, outcome: str, *, force: bool = False) -> Ownership:
        """Become the owner of a run; `outcome` says what becomes of it if its process had died."""
        await self._end_left_behind()
        ownership = await self.store.run_log.take_over(
            row.id, self.instance.id, expect_dead=None if force else row.owner, force=force
        )
        if row.status == "running":
            self._audit.note("run.recovered", row, outcome=outcome)
        return ownership

    async def _end_left_behind(self) -> None:
        """End what dead processes left running, before anything works on the same files."""
        if self._parts.records:
            for line in await end_left_behind(self._parts.records.directory, self.store.liveness):
                _log.warning("%s", line)

    async def _refuse_live(self, row: RunRow, *, take_over: bool) -> None:
        """Raise if the run's process lives, or may live and nobody said to take it over."""
        status = await shown_status(row, self.store.liveness)
        if status == "running":
            raise UsageError(
                f"run {row.id!r} is running in another process; `infloop logs --follow {row.id}` "
                f"shows it, `infloop cancel {row.id}` stops it"
            )
        if status == "stalled" and not take_over:
            raise UsageError(
                f"run {row.id!r} belongs to a process that exists but gives no sign of life; "
                "end that process, or add --take-over: it can then write nothing more"
            )

    async def plan_rewind(self, run_id: str, step: str) -> list[GoingBack]:
        """Return what going back to `step` changes in the directories the run has worked in."""
        found = await self._moments(run_id, await self.find_step(run_id, step))
        workspaces = self._parts.workspaces
        if workspaces is None:
            return []
        return [GoingBack(each.directory, await workspaces.changes(each)) for each in found]

    async def _moments(self, run_id: str, seq: int) -> list[Moment]:
        """Return how the directories of a run were; raise if it may be changing them still."""
        workspaces = self._parts.workspaces
        if workspaces is None:
            return []
        # A worktree that was made later is no more: going on, the run makes a new one.
        found = [
            each
            for each in await moments(self.store.run_log, run_id, seq)
            if each.visited or not workspaces.is_worktree(each.directory)
        ]
        if found:
            await self._refuse_live(await self.store.run_log.run(run_id), take_over=False)
        return found

    async def rewind(self, run_id: str, step: str) -> str:
        """Begin a new run that has everything up to `step` in common with `run_id`.

        The files in the directories that the run has worked in become what they were then; what
        they are now is kept first, and the new run's record says as which snapshot.
        """
        await self.refuse_if_spent()
        row = await self.store.run_log.run(run_id)
        _refuse_imported(row)
        seq = await self.find_step(run_id, step)
        past = await self._moments(run_id, seq)
        await self._end_left_behind()
        loaded = await self.store.run_log.load(run_id, until_seq=seq - 1)
        workdir, _ = await self._workdirs.enter((await self._first_event(loaded)).workdir)
        await self._parts.reserve.refuse(workdir)
        new = NewRun(
            str(uuid.uuid4()),
            row.workflow_id,
            row.workflow_name,
            loaded.definition,
            self.instance.id,
            self._clock.now_ms(),
            f"cid_{secrets.token_hex(16)}",
            Cause("rewind", parent_run=run_id, parent_step=step, untrusted=row.cause.untrusted),
        )
        restores = await self._keep_replaced(new, past)
        ownership = await self.store.run_log.fork(run_id, seq, new)
        self._audit.note("run.started", new)
        if restores:
            first = ownership.last_seq + SEQ_GAP
            announced = [
                Recorded(new.id, seq, new.started_at, new.correlation_id, event)
                for seq, event in enumerate(restores, first)
            ]
            await self.store.run_log.append(new.id, ownership.epoch, announced)
            ownership = Ownership(ownership.epoch, announced[-1].seq)
        await self._continue(await self.store.run_log.load(new.id), ownership)
        return new.id

    async def _keep_replaced(self, run: NewRun, past: list[Moment]) -> list[TreeRestored]:
        """Keep, for the new run, what a rewind will replace; return what it has to restore."""
        workspaces = self._parts.workspaces
        if workspaces is None:
            return []
        workspaces.store.share(run.cause.parent_run, run.id)
        found = [await workspaces.prepare(run.id, run.cause.parent_step, each) for each in past]
        return [each for each in found if each]

    async def find_step(self, run_id: str, step: str) -> int:
        """Return where in the sequence a step, or a round such as `loop-1[3]`, first began."""
        after, seen = 0, list[str]()
        while batch := await self.store.run_log.events(run_id, after, include_output=False):
            for item in batch:
                event = item.event
                if isinstance(event, StepStarted | StepPassed):
                    if event.path == step or event.path.startswith(f"{step}/"):
                        return item.seq
                    seen.append(event.path)
            after = batch[-1].seq
        shown = ", ".join(dict.fromkeys(seen[-12:])) or "none"
        raise UsageError(
            f"run {run_id!r} has no step {step!r}; its last steps are: {shown}. "
            f"`infloop show {run_id}` lists them all"
        )

    async def _continue(
        self,
        loaded: LoadedRun,
        ownership: Ownership,
        *,
        max_cost_usd: float | None = None,
        stop: StopRequested | None = None,
    ) -> None:
        """Rebuild a run's state from the journal and go on from there, or `stop` it there."""
        definition = decode_definition(loaded.definition)
        program = compile_program(definition)
        started = await self._first_event(loaded)
        files = await self._bring_back(loaded, ownership)
        directory = None if stop else await self._workdirs.identity(started.workdir)
        now = self._clock.now_ms()
        root = definition.workflows[definition.root]
        limits = merge_limits(self._parts.limits, root, max_cost_usd)
        fence = self._fence(loaded.run.id, root, files, started.cause)
        resumed = RunResumed(ownership.epoch, limits, fence.isolation, fence.egress, directory)
        first = Recorded(
            loaded.run.id, ownership.last_seq + SEQ_GAP, now, loaded.run.correlation_id, resumed
        )
        await self.store.run_log.append(loaded.run.id, ownership.epoch, [first])
        state, _ = advance(program, rebuild(program, loaded), resumed, now)
        commands = outstanding(program, state, now)
        if stop:
            commands = _stopped(commands, stop)
        live = self._go(
            program,
            state,
            commands,
            started,
            first,
            ownership.epoch,
            files,
            fence,
            act=_begin_nothing if stop else None,
        )
        live.feed.publish(first)

    async def _bring_back(self, loaded: LoadedRun, ownership: Ownership) -> RunWorkspace | None:
        """Let a run have its files again: those it goes back to, and its worktrees."""
        run, workspaces = loaded.run, self._parts.workspaces
        if workspaces is None:
            return None
        files = workspaces.of_run(run.id)
        try:
            for event in unfinished(loaded.events):
                await workspaces.restore(run.id, event)
            await files.reopen()
        except (InfloopError, OSError) as error:
            seq, reason = ownership.last_seq + SEQ_GAP, f"its files could not be restored: {error}"
            ended = RunFinished("failed", reason, interrupted=True)
            at = self._clock.now_ms()
            last = Recorded(run.id, seq, at, run.correlation_id, ended)
            await self.store.run_log.append(run.id, ownership.epoch, [last])
            self._audit.note("run.finished", run, outcome=ended.status)
            raise
        return files

    async def _first_event(self, loaded: LoadedRun) -> RunStarted:
        for item in await self.store.run_log.events(loaded.run.id, limit=1, include_output=False):
            if isinstance(item.event, RunStarted):
                return item.event
        raise NotFound(f"run {loaded.run.id!r} has no beginning; it cannot be continued")

    def _go(
        self,
        program: Program,
        state: State,
        commands: Sequence[Command],
        started: RunStarted,
        first: Recorded,
        epoch: int,
        files: RunWorkspace | None,
        fence: RunFence,
        act: Performer | None = None,
    ) -> LiveRun:
        """Put the loop, the recorder and the feed of a run together and let it go."""
        run_id = first.run_id

        async def tidy_up() -> None:
            if files is not None:
                await files.close(loop.post)

        leaks = self._parts.leaks
        loop = RunLoop(program, state, self.store.run_log, tidy_up, leaks.event)

        async def read(after_seq: int, limit: int) -> list[Recorded]:
            await loop.recorder.durable()
            return await self.store.run_log.events(run_id, after_seq, limit=limit)

        feed = Feed(read, first.seq - 1, self.news.publish if self.news.watched else None)
        loop.recorder = Recorder(
            self.store.run_log,
            feed,
            self._clock,
            run_id,
            first.correlation_id,
            epoch,
            first.seq,
            loop.fail,
        )
        doors = RunDoors(self._all_runs, loop, started, files, fence)
        loop.perform = act or leaks.around(doors.perform)
        live = LiveRun(
            run_id,
            started.workflow_id,
            first.correlation_id,
            loop,
            feed,
            fence.disks,
            asyncio.get_running_loop().create_future(),
        )
        live.finished.add_done_callback(self._tell_of_end)
        if self._parts.markers:
            self._parts.markers.put(run_id, started.workflow_id, first.time)
        live.task = asyncio.create_task(self._drive(live, commands))
        self._live[run_id] = live
        self.store.run_log.expect_runs(len(self._live))
        return live

    async def _drive(self, live: LiveRun, commands: Sequence[Command]) -> None:
        """See a run through; once it has settled, have it tidied up behind it."""
        try:
            finished = await live.loop.drive(commands)
            live.finished.set_result(finished)
            self._audit.note("run.finished", live, outcome=finished.status)
            live.feed.close()
            if self._parts.homes and not finished.interrupted:  # else it finds them when it goes on
                await self._parts.homes.forget(live.id)
            self._tidying.ended(live.id, live.workflow_id)
        except asyncio.CancelledError:
            live.finished.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (the edge of a run: it goes to who waits for it)
            # A home that cannot be removed is removed at the next start.
            if not live.finished.done():
                live.finished.set_exception(error)
                live.finished.exception()  # if nobody waits, nobody needs to hear of it
        finally:
            live.feed.close()
            del self._live[live.id]
            if self._parts.markers:
                self._parts.markers.remove(live.id)
            self.store.run_log.expect_runs(len(self._live))

    def _tell_of_end(self, _: object) -> None:
        for tell in self._on_end:
            tell()

    async def _drop_forgotten(self) -> None:
        """Drop the snapshots of forgotten runs, at most once a day."""
        workspaces = self._parts.workspaces
        if workspaces is not None and not workspaces.dropped_lately():
            await workspaces.drop_forgotten(partial(is_known, self.store.run_log))

    def _note_connections(self, run_id: str, decided: Decided) -> None:
        """Write decisions about connections into the audit log, and tell who counts them."""
        live, clean = self._live[run_id], self._parts.leaks.known.redact
        details = clean(decided.details())
        self._audit.note(decided.event, live, outcome=decided.kind.reason, details=details)
        self.news.publish(clean(decided.message(live, self._clock.now_ms())))

    async def recover(self) -> Recovered:
        """Record runs whose process died as failed, but for those that ask to be resumed.

        The worktrees of those that failed are saved and removed; resumed, they are there again.
        First of all, whatever dead processes left running is ended.
        """
        records = self._parts.records
        ended = await end_left_behind(records.directory, self.store.liveness) if records else []
        if self._parts.markers:
            await self._parts.markers.clear(partial(is_dead, self.store.liveness))
        await abandon_dead_calls(self.store.ledger, self.store.liveness, self._clock)
        if self._parts.approvals is not None:
            await self._parts.approvals.tidy()
        found = await reconcile(
            self.store.run_log, self.store.liveness, self.instance.id, self._clock, SEQ_GAP
        )
        found.files.extend(ended)
        for run_id in found.failed:
            row = await self.store.run_log.run(run_id)
            self._audit.note("run.recovered", row, outcome="failed")
        workspaces = self._parts.workspaces
        if workspaces is not None:
            found.files.extend(await workspaces.recover(partial(is_over, self.store.run_log)))
        if self._parts.homes:
            await self._parts.homes.recover(partial(is_over, self.store.run_log))
        return found

    # -- live runs ---------------------------------------------------------------------------

    @property
    def approvals(self) -> Approvals | None:
        """What waits for a person, if anybody is asked."""
        return self._parts.approvals

    @property
    def workspaces(self) -> Workspaces | None:
        """Where worktrees and snapshots are, if there are any."""
        return self._parts.workspaces

    async def refuse_if_spent(self) -> None:
        """Raise if no run would begin: BudgetError (no money), StoreError (no room on the disk)."""
        await self._ledger.refuse_if_spent()
        self._parts.reserve.refuse_all()

    def live(self) -> dict[str, str]:
        """Return the runs that this process drives, oldest first, each with its workflow."""
        return {run.id: run.workflow_id for run in self._live.values() if not run.finished.done()}

    def on_end(self, tell: Callable[[], None]) -> None:
        """Have `tell` called whenever a run that this process drives has ended."""
        self._on_end.append(tell)

    async def settle_audit(self) -> None:
        """Return when what has become of runs so far is in the audit log."""
        await self._audit.settle()

    def glance(self, run_id: str) -> Glance | None:
        """Return what a run that this process drives is doing, or None if it drives no such run."""
        live = self._live.get(run_id)
        return live.loop.glance() if live is not None else None

    async def status(self, row: RunRow) -> RunStatus:
        """Return what a run is, by evidence: `running` only if its process lives."""
        return await shown_status(row, self.store.liveness)

    async def wait(self, run_id: str) -> RunFinished:
        """Return how a run finished, once it has."""
        live = self._live.get(run_id)
        if live is not None:
            return await asyncio.shield(live.finished)
        row = await self.store.run_log.run(run_id)
        if row.status == "running":
            raise UsageError(f"run {run_id!r} is not running in this process")
        return RunFinished(row.status, row.error, row.failed_step)

    async def stop(self, run_id: str, reason: str) -> None:
        """Ask for a run to be cancelled, whichever process drives it."""
        live = self._live.get(run_id)
        if live is not None:
            live.loop.stop(reason)
        else:
            await self.store.liveness.request_stop(run_id, reason, self._clock.now_ms())

    async def cancel(self, row: RunRow, reason: str) -> None:
        """Stop a run: ask whoever drives it, or settle it if nobody does."""
        if await self.status(row) in ("running", "stalled"):
            await self.stop(row.id, reason)
        else:
            await self.cancel_undriven(row.id, reason)

    async def listen(self, run_id: str, after_seq: int = 0) -> AsyncGenerator[list[Recorded]]:
        """Yield a run's sequence after `after_seq`, live to its end, in batches."""
        live = self._live.get(run_id)
        if live is not None:
            async for batch in live.feed.listen(after_seq):
                yield batch
            return
        async for batch in follow(self.store, run_id, after_seq):
            yield batch

    # -- tending -----------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Show that this process lives, keep room, learn secrets, hear what runs are asked."""
        seen = beaten = -1.0
        loop = asyncio.get_running_loop()
        while True:
            self._keep_room()
            self._parts.leaks.look()
            if loop.time() - beaten >= BEAT_SECONDS:
                await self.instance.heartbeat()
                beaten = loop.time()
            version = self.store.changes.version()
            if version != seen and self._live:
                for request in await self.store.liveness.stop_requests(self.instance.id):
                    live = self._live.get(request.run_id)
                    if live is not None:
                        live.loop.stop(request.reason)
                seen = version
            await asyncio.sleep(POLL_SECONDS)

    def _keep_room(self) -> None:
        """End the runs that would take what must stay free on a disk."""
        for_all = self._parts.reserve.shortage() if self._live else ""
        for live in self._live.values():
            if reason := for_all or live.disks.shortage():
                live.disks.give_up()
                live.loop.give_up(reason)


def _refuse_imported(row: RunRow) -> None:
    if row.cause.kind == "import":
        raise UsageError(
            f"run {row.id!r} was imported: its record does not hold the workflow, so it can be "
            "shown and searched, and not be continued"
        )


def _stopped(commands: Sequence[Command], stop: StopRequested) -> list[Command]:
    """Return how a run is cancelled that has these commands left; it does not pause again."""
    left = [each for each in commands if not _is_pause(each)]
    open_steps = [each.path for each in left if isinstance(each, Perform | Wait)]
    return [*left, Emit(stop), *(Interrupt(path, stop.reason) for path in open_steps)]


def _is_pause(command: Command) -> bool:
    return (
        isinstance(command, Emit)
        and isinstance(command.event, RunFinished)
        and command.event.interrupted
    )


async def _begin_nothing(_perform: Perform, _say: Say) -> Outcome:
    """Perform a step of a run that is only being settled."""
    raise StepError("cancelled before it began")


def rebuild(program: Program, loaded: LoadedRun) -> State:
    """Return the state that a run's stored events add up to."""
    state = decode_state(loaded.checkpoint.state) if loaded.checkpoint else State()
    for item in loaded.events:
        state, _ = advance(program, state, item.event, item.time)  # type: ignore[arg-type]
    return state


async def follow(store: Store, run_id: str, after_seq: int = 0) -> AsyncGenerator[list[Recorded]]:
    """Yield a run's stored sequence, and go on while the process that drives it lives."""
    while True:
        version = store.changes.version()
        status = await shown_status(await store.run_log.run(run_id), store.liveness)
        while batch := await store.run_log.events(run_id, after_seq):
            yield batch
            after_seq = batch[-1].seq
        if status not in ("running", "stalled"):
            return
        await store.changes.wait(version, BEAT_SECONDS)  # then see whether it still lives
