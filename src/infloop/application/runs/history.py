"""List, search and read runs. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import asdict, replace

from infloop.application.runs.activity import RunActivity, read_activity
from infloop.application.runs.cost import run_cost, run_costs
from infloop.application.runs.models import (
    FINISHED,
    ChangeList,
    Diff,
    EventPage,
    Idle,
    LatestRun,
    OutputPage,
    OutputPreview,
    QueuedRun,
    RefusedFiring,
    ReplacedDirectory,
    RunDetail,
    RunPage,
    RunProgress,
    RunReport,
    RunSummary,
    RunWorkflow,
    SearchMatch,
    StepReport,
)
from infloop.application.workers import Workers
from infloop.errors import NotFound, UsageError
from infloop.model.events import Output, StepStarted, is_within, step_path
from infloop.runtime.runs.run_status import current_status, current_statuses
from infloop.store.interfaces.queue import QueueEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import date

    from infloop.application.resources import Resources
    from infloop.application.runs.cost import RunCost
    from infloop.application.runs.file_changes import RunResult
    from infloop.application.runs.models import QueueStatus, RunStatus
    from infloop.application.runs.statistics import Grouping, RunStatistics
    from infloop.application.runs.step_list import StepPage
    from infloop.application.runs.view import RunView, StepView
    from infloop.model.events import Recorded
    from infloop.model.messages import Message
    from infloop.model.values import JsonObject
    from infloop.store.interfaces.queue import QueueState
    from infloop.store.interfaces.run_log import RunRow, SearchHit, StoredStatus

MAX_EVENTS = 5_000
"""How many of its newest events the state of the latest run holds."""

MAX_RECORDED_EVENTS = 50_000
"""How many of its newest events a run's record holds, if they are not too large together."""

MAX_SEARCHED = 500
PAGE = 200
SHORTEST_PREFIX = 4
_QUEUE_STATUS: dict[QueueState, QueueStatus] = {
    "waiting": "queued",
    "taken": "queued",
    "started": "started",
    "removed": "removed",
    "dropped": "dropped",
}
_NOT_OUTPUTS = ("inputs", "__inputs", "globals")


class RunHistory:
    """Reads what is recorded, and what the live runs of this process are doing."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._log = resources.store.run_log

    # -- which run ---------------------------------------------------------------------------

    async def find(self, name: str) -> RunSummary:
        """Return the run with this id, with an id that begins so, or the newest for `last`.

        Raises UsageError that says what to type.
        """
        return await self.summarize(await self._find_row(name))

    async def _find_row(self, name: str) -> RunRow:
        if name == "last":
            newest = await self._log.runs(limit=1)
            if not newest:
                raise UsageError("there are no runs yet; `infloop run FILE` makes one")
            return newest[0]
        try:
            return await self._log.run(name)
        except NotFound:
            return await self._find_by_prefix(name)

    async def _find_by_prefix(self, name: str) -> RunRow:
        if len(name) < SHORTEST_PREFIX:
            raise UsageError(
                f"{name!r} is too short for a run's id; give at least {SHORTEST_PREFIX} characters"
            )
        found = await self._log.runs_with_prefix(name)
        if not found:
            await self._refuse_queued(name)
            raise UsageError(f"there is no run {name!r}; `infloop runs` lists them")
        if len(found) > 1:
            few = ", ".join(row.id for row in found[:4])
            raise UsageError(
                f"{name!r} may be one of several runs: {few}{', …' if len(found) > 4 else ''}; "
                "give more of its id"
            )
        return found[0]

    async def find_or_queued(self, name: str) -> RunSummary | QueuedRun:
        """Return a run as `find` does, also one that waits in the queue."""
        return await self._find_queued(name) or await self.find(name)

    async def _find_queued(self, name: str) -> QueuedRun | None:
        if len(name) < SHORTEST_PREFIX:
            return None
        entries = await self._resources.store.queue.entries()
        found = [entry for entry in entries if entry.run.run_id.startswith(name)]
        return await self._queued(found[0]) if len(found) == 1 else None

    async def _refuse_queued(self, name: str) -> None:
        """Raise a UsageError that says why a run that waits in the queue has not started."""
        waiting = await self._find_queued(name)
        if waiting is not None:
            held = " and is held" if not waiting.position else ""
            why = f"{held}: {waiting.reason}" if waiting.reason else ""
            raise UsageError(
                f"run {waiting.run_id!r} has not started: it waits in the queue{why}; "
                f"`infloop cancel {waiting.run_id}` removes it"
            )

    async def _queued(self, entry: QueueEntry) -> QueuedRun:
        """Return a run that has not begun, with the reason if it cannot."""
        reasons = await Workers(self._resources).why_waiting([entry])
        return queued(entry, reasons.get(entry.run.id, ""))

    async def find_row_or_entry(self, run_id: str) -> RunRow | QueueEntry:
        """Return a run's row, or its place in the queue; raise NotFound if there is neither.

        A run may begin between two reads, so the journal is read again.
        """
        from infloop.runtime.runs.dispatch import queue_id

        try:
            return await self._log.run(run_id)
        except NotFound:
            entry = await self._resources.store.queue.entry(queue_id(run_id))
            return entry if entry.state != "started" else await self._log.run(run_id)

    # -- one run -----------------------------------------------------------------------------

    async def summary(self, run_id: str) -> RunSummary | QueuedRun:
        """Return a run without its scope and events, also one that waits in the queue."""
        found = await self.find_row_or_entry(run_id)
        if isinstance(found, QueueEntry):
            return await self._queued(found)
        return await self.summarize(found)

    async def summarize(self, row: RunRow) -> RunSummary:
        """Return a run without its scope and events."""
        status = await current_status(row, self._resources.store.liveness)
        cost = await run_cost(self._resources.store.ledger, row.id)
        return _summary(row, status, cost, await self._activity(row, status))

    async def _activity(self, row: RunRow, status: RunStatus) -> RunActivity | None:
        """Return where a run is; None if it has ended, or has gone meanwhile."""
        if status in FINISHED:
            return None
        try:
            return await read_activity(self._log, row)
        except NotFound:
            return None

    async def detail(self, run_id: str) -> RunDetail | QueuedRun:
        """Return a run with its scope, also one that waits in the queue or is live."""
        found = await self.find_row_or_entry(run_id)
        if isinstance(found, QueueEntry):
            return await self._queued(found)
        return await self._detail(found)

    async def record(self, workflow_id: str, run_id: str) -> RunDetail | QueuedRun:
        """Return a run of this workflow, with its newest events once it has ended.

        It may still wait in the queue.
        """
        found = await self.find_row_or_entry(run_id)
        run = found.run if isinstance(found, QueueEntry) else found
        if run.workflow_id != workflow_id:
            raise NotFound(f"workflow {workflow_id[:80]!r} has no run {run_id!r}")
        if isinstance(found, QueueEntry):
            return await self._queued(found)
        return await self._detail(found, MAX_RECORDED_EVENTS if found.finished_at else 0)

    async def latest(self, max_events: int = MAX_EVENTS) -> LatestRun:
        """Return the run that began last, with its newest events; a live run comes first."""
        live = list(self.live_runs())
        rows = [await self._log.run(live[-1])] if live else await self._log.runs(limit=1)
        if not rows:
            return LatestRun(state=Idle(iteration_by_loop_id={}, scope={}, events=[]))
        state = await self._detail(rows[0], max_events)
        if state.iteration_by_loop_id is UNSET:
            state = replace(state, iteration_by_loop_id={})
        return LatestRun(state=state)

    async def _detail(self, row: RunRow, max_events: int = 0) -> RunDetail:
        service = self._resources.driving()
        progress = service.progress(row.id) if service and row.finished_at is None else None
        common = asdict(await self.summarize(row)) | {"untrusted": await self._untrusted(row)}
        if max_events:
            from infloop.application.runs.newest_events import newest_events

            events, truncated = await newest_events(self._log, row, max_events)
            common |= {"events": events, "truncated": truncated or UNSET}
        if progress is None:
            return RunDetail(**common, scope=await self._log.scope(row.id) or {})
        return RunDetail(
            **common,
            scope=progress.scope,
            current_node_id=progress.nodes[-1] if progress.nodes else None,
            open_node_ids=list(progress.nodes),
            iteration_by_loop_id=dict(progress.rounds),
        )

    async def untrusted(self, run_id: str) -> list[str]:
        """Return the inputs and nodes of a run that hold something from outside."""
        return await self._untrusted(await self._log.run(run_id))

    async def _untrusted(self, row: RunRow) -> list[str]:
        if not row.cause.untrusted:
            return []
        from infloop.runtime.runs.taint_report import untrusted_names

        return await untrusted_names(self._log, row)

    async def view(self, run_id: str) -> RunView:
        """Return a run's steps, cost and outcome, rebuilt from its events."""
        from infloop.application.runs.replay import whole_view

        return await whole_view(self._resources.store, run_id)

    async def report(self, run_id: str) -> RunReport:
        """Return a run with its steps."""
        view, row = await self.view(run_id), await self._log.run(run_id)
        detail = asdict(await self._detail(row))
        # The record of an imported run says what it cost.
        detail |= {"cost_usd": view.cost.usd, "cost_is_complete": view.cost.complete}
        if view.finished:
            error = view.finished.error
            detail |= {"error": error, "error_message": error or UNSET}
        return RunReport(
            **detail,
            inputs=view.started.inputs if view.started else {},
            isolation=view.isolation,
            egress=view.egress,
            warnings=[*view.denials, *(notice.message for notice in view.notices)],
            steps_done=view.steps_done,
            step_list=[_step_report(step) for step in view.steps()],
        )

    async def workflow(self, run_id: str) -> RunWorkflow:
        """Return what a run executes, whatever became of the file since."""
        from infloop.engine.graph import decode_definition

        definition = decode_definition((await self._log.load(run_id, until_seq=1)).definition)
        called = dict(definition.workflows)
        return RunWorkflow(workflow=called.pop(definition.root), called=called)

    async def steps(self, run_id: str, after: int, limit: int) -> StepPage:
        """Return a page of the visits of a run's nodes."""
        from infloop.application.runs.step_list import read_steps

        await self._log.run(run_id)
        return await read_steps(self._log, run_id, after, limit)

    async def step_events(self, run_id: str, path: str) -> list[Recorded]:
        """Return the events of the last visit of a step, without output."""
        found: list[Recorded] = []
        after = 0
        while batch := await self._log.events(run_id, after, include_output=False):
            for item in batch:
                if step_path(item.event) == path:
                    if isinstance(item.event, StepStarted):
                        found.clear()
                    found.append(item)
            after = batch[-1].seq
        if not found:
            raise UsageError(
                f"run {run_id!r} has no step {path!r}; `infloop show {run_id}` lists its steps"
            )
        return found

    async def newest_id(self, workflow_id: str = "") -> str:
        """Return the id of the run that was asked for last, of this workflow or of any.

        A queued run is newer than all that have begun.
        """
        waiting = [
            entry.run
            for entry in await self._resources.store.queue.entries()
            if workflow_id in ("", entry.run.workflow_id)
        ]
        if waiting:
            return max(waiting, key=lambda run: run.queued_at).run_id
        rows = await self._log.runs(workflow_id=workflow_id or None, limit=1)
        if not rows:
            raise UsageError("there is no run yet; call the tool of a workflow to start one")
        return rows[0].id

    def progress(self, run_id: str) -> RunProgress | None:
        """Return where a run is that this process drives."""
        service = self._resources.driving()
        found = service.progress(run_id) if service else None
        if found is None:
            return None
        return RunProgress(open_nodes=list(found.nodes), rounds=dict(found.rounds))

    async def scope(self, run_id: str) -> JsonObject:
        """Return the scope that a settled run ended with."""
        return await self._log.scope(run_id) or {}

    async def outputs(self, run_id: str) -> JsonObject:
        """Return what the steps of a finished run returned, by node."""
        scope = await self.scope(run_id)
        return {name: value for name, value in scope.items() if name not in _NOT_OUTPUTS}

    async def output_page(
        self, run_id: str, step: str, field: str, offset: int, limit: int
    ) -> OutputPage:
        """Return part of one output of a step."""
        page = await self._log.output_page(run_id, step, field, offset, limit)
        return OutputPage(text=page.text, offset=page.offset, total=page.total)

    # -- many runs ---------------------------------------------------------------------------

    async def page(
        self,
        *,
        workflow_id: str | None = None,
        status: RunStatus | None = None,
        search: str | None = None,
        limit: int = 100,
        before: str | None = None,
        activity: bool = False,
        max_searched: int = MAX_SEARCHED,
    ) -> RunPage:
        """List runs, newest first; with `search`, those in which all its words occur.

        At most `max_searched` search results are looked at. With `activity`, each run that has not
        ended says where it is, which is read for one run at a time.
        """
        page = await self._page(
            workflow_id, status, search, limit, before, max_searched, activity=activity
        )
        if status or search or before:
            return page
        held = await self.held(workflow_id)
        return replace(page, held=held, refused=await self.refused(workflow_id))

    async def statistics(
        self, by: Grouping, since: date, workflow_id: str | None = None
    ) -> RunStatistics:
        """Return how the runs since a day ended and what they cost."""
        from infloop.application.runs.statistics import run_statistics

        return await run_statistics(self._resources, by, since, workflow_id)

    async def held(self, workflow_id: str | None = None) -> list[QueuedRun]:
        """Return the queued runs that cannot start, each with the reason."""
        entries = await self._resources.store.queue.entries()
        return [
            queued(entry)
            for entry in entries
            if entry.held and workflow_id in (None, entry.run.workflow_id)
        ]

    async def refused(
        self, workflow_id: str | None = None, limit: int = PAGE
    ) -> list[RefusedFiring]:
        """Return the refused firings of triggers, newest first."""
        store = self._resources.store
        return [
            RefusedFiring(
                trigger=each.trigger,
                trigger_name=each.name,
                trigger_kind=each.kind,
                workflow_id=each.workflow_id,
                reason=each.reason,
                message=each.message,
                correlation_id=each.correlation_id,
                at=each.at,
                first_at=each.first_at,
                count=each.count,
            )
            for each in await store.refusals.newest(workflow_id=workflow_id, limit=limit)
        ]

    async def _page(
        self,
        workflow_id: str | None,
        status: RunStatus | None,
        search: str | None,
        limit: int,
        before: str | None,
        max_searched: int,
        *,
        activity: bool,
    ) -> RunPage:
        batches = (
            self._search(search, workflow_id, max_searched)
            if search
            else self._list(workflow_id, status, before, min(limit, PAGE))
        )
        found: list[tuple[RunRow, RunStatus, SearchHit | None]] = []
        async for batch in batches:
            rows = [row for row, _ in batch]
            statuses = await current_statuses(rows, self._resources.store.liveness)
            found += [
                (row, current, hit)
                for (row, hit), current in zip(batch, statuses, strict=True)
                if status in (None, current)
            ]
            if len(found) >= limit:
                break
        del found[limit:]
        cursor = found[-1][0].id if len(found) == limit and not search else None
        costs = await run_costs(self._resources.store.ledger, [row.id for row, _, _ in found])
        runs = [
            _summary(
                row,
                current,
                costs[row.id],
                await self._activity(row, current) if activity else None,
                hit,
            )
            for row, current, hit in found
        ]
        return RunPage(runs=runs, next=cursor)

    async def _search(
        self, text: str, workflow_id: str | None, limit: int
    ) -> AsyncIterator[list[tuple[RunRow, SearchHit | None]]]:
        yield [
            (hit.run, hit)
            for hit in await self._log.search(text, limit=limit)
            if workflow_id in (None, hit.run.workflow_id)
        ]

    async def _list(
        self, workflow_id: str | None, status: RunStatus | None, before: str | None, size: int
    ) -> AsyncIterator[list[tuple[RunRow, SearchHit | None]]]:
        """Yield all runs, so many at a time: the last batch is the first that is not full."""
        cursor = (await self._log.run(before)).cursor if before else None
        while True:
            rows = await self._log.runs(
                workflow_id=workflow_id, status=_stored(status), limit=size, before=cursor
            )
            yield [(row, None) for row in rows]
            if len(rows) < size:
                return
            cursor = rows[-1].cursor

    def live_runs(self) -> dict[str, str]:
        """Return the runs that this process drives, oldest first, each with its workflow."""
        service = self._resources.driving()
        return service.live() if service else {}

    # -- events ------------------------------------------------------------------------------

    async def log(
        self, run_id: str, after: int, limit: int, *, output: bool, step: str = ""
    ) -> EventPage:
        """Return a page of a run's events, as the event stream shows them.

        With `step`, only what belongs to that step or is inside it.
        """
        await self._log.run(run_id)
        batch = await self._log.events(run_id, after, limit=limit, include_output=output)
        shown = [item for item in batch if is_within(step_path(item.event), step)]
        return EventPage(
            events=_messages(shown, output=output),
            next=batch[-1].seq if batch else None,
            previous=after + 1 if after else None,
        )

    async def log_before(
        self, run_id: str, before: int, limit: int, *, output: bool, step: str = ""
    ) -> EventPage:
        """Return the last events before a sequence number, in order; see `log`."""
        found = await self._log.events_before(
            run_id, before, step=step, limit=limit, include_output=output
        )
        return EventPage(
            events=_messages(found.items, output=output),
            next=found.items[-1].seq if found.items else None,
            previous=found.before_seq,
        )

    async def events(self, run_id: str, after: int = 0) -> AsyncIterator[list[Recorded]]:
        """Yield what is recorded of a run so far, in batches."""
        while batch := await self._log.events(run_id, after):
            yield batch
            after = batch[-1].seq

    # -- files -------------------------------------------------------------------------------

    async def diff(
        self,
        run_id: str,
        step: str = "",
        *,
        everything: bool = False,
        include: Sequence[str] = (),
        redacted: bool = False,
    ) -> Diff:
        """Return the files that are the result of a run, or of one step or round of it.

        Of a whole run in a worktree this is exactly what `apply` takes. With `everything`, or for
        the names in `include`, also files that only a check made and files that git ignores.
        With `redacted` it is without the secrets that the leak guard finds.
        """
        from infloop.application.runs.file_changes import directory_diffs

        result = await self._result(run_id, step, everything, include)
        return Diff(directories=await directory_diffs(result, redacted=redacted) if result else [])

    async def changes(
        self, run_id: str, step: str = "", *, everything: bool = False, include: Sequence[str] = ()
    ) -> ChangeList:
        """Return which files `diff` shows."""
        from infloop.application.runs.file_changes import directory_changes

        result = await self._result(run_id, step, everything, include)
        return ChangeList(directories=await directory_changes(result) if result else [])

    async def _result(
        self, run_id: str, step: str, everything: bool, include: Sequence[str]
    ) -> RunResult | None:
        from infloop.application.runs.file_changes import run_result
        from infloop.workspace.applying.selection import Wanted

        await self._log.run(run_id)
        return await run_result(self._resources, run_id, step, Wanted(everything, tuple(include)))

    async def replaced(self, run_id: str, after_seq: int) -> list[ReplacedDirectory]:
        """Return the directories that a rewind changed after this place in a run."""
        from infloop.runtime.timeline import replacing_restores

        return [
            ReplacedDirectory(directory=each.directory, snapshot=each.replaced)
            for each in await replacing_restores(self._log, run_id, after_seq)
        ]


def _messages(items: Sequence[Recorded], *, output: bool) -> list[Message]:
    from infloop.model.messages import expand

    shown = (item for item in items if output or not isinstance(item.event, Output))
    return [message for item in shown for message in expand(item)]


def _summary(
    row: RunRow,
    status: RunStatus,
    cost: RunCost,
    activity: RunActivity | None,
    hit: SearchHit | None = None,
) -> RunSummary:
    activity = activity or RunActivity(open_steps=[], rounds={})
    return RunSummary(
        run_id=row.id,
        workflow_id=row.workflow_id,
        workflow_name=row.workflow_name,
        status=status,
        started_at=row.started_at,
        finished_at=row.finished_at,
        duration_ms=None if row.finished_at is None else row.finished_at - row.started_at,
        steps=row.steps,
        event_count=row.events,
        failed_step=row.failed_step,
        error=row.error,
        error_message=row.error or UNSET,
        cause=row.cause,
        correlation_id=row.correlation_id,
        epoch=row.epoch,
        last_seq=row.last_seq,
        cost_usd=cost.usd,
        cost_is_complete=cost.complete,
        tokens=cost.tokens,
        max_cost_usd=activity.max_cost_usd,
        open_steps=activity.open_steps,
        rounds=activity.rounds,
        last_sign_at=activity.last_sign_at,
        waiting=activity.waiting,
        match=_match(hit) if hit else UNSET,
    )


def _step_report(step: StepView) -> StepReport:
    return StepReport(
        path=step.path,
        node=step.node,
        node_type=step.node_type,
        started_at=step.started_at,
        running=step.running,
        attempt=step.attempt,
        handle=step.handle,
        error=step.error,
        duration_ms=step.duration_ms,
        cost_usd=step.cost_usd,
        rounds=step.rounds if step.opens == "round" else None,
        rounds_not_listed=step.frames.omitted,
        outputs={
            name: OutputPreview(text=output.text, size=output.size)
            for name, output in step.outputs.items()
        },
    )


def queued(entry: QueueEntry, waits_for: str = "") -> QueuedRun:
    """Return a run that has not begun; `waits_for` says why nobody takes it."""
    return QueuedRun(
        run_id=entry.run.run_id,
        queue_id=entry.run.id,
        workflow_id=entry.run.workflow_id,
        status=_QUEUE_STATUS[entry.state],
        position=entry.position,
        queued_at=entry.run.queued_at,
        reason=entry.reason or waits_for,
        cause=entry.run.cause,
        correlation_id=entry.run.correlation_id,
    )


def _stored(status: RunStatus | None) -> StoredStatus | None:
    if status == "stalled" or status == "interrupted":
        return "running"
    return status


def _match(hit: SearchHit) -> SearchMatch:
    return SearchMatch(step=hit.path, kind=hit.kind, text=hit.snippet, places=hit.matches)
