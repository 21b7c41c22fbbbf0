"""Explains a run: what started it, what it does or waits for, what ended it, what to do next.

Everything is derived from the run's events and from whether its process is alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from infloop.application.models import Model
from infloop.application.runs.cost import RunCost
from infloop.application.runs.models import RunSummary
from infloop.application.runs.next_actions import NextAction, next_actions
from infloop.application.runs.replay import whole_view
from infloop.application.runs.view import OUTPUT_TAIL_CHARS
from infloop.errors import NotFound
from infloop.model.approval import Approval
from infloop.model.events import Cause, Output
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.application.resources import Resources
    from infloop.application.runs.history import RunHistory
    from infloop.application.runs.view import RunView, StepView
    from infloop.store.interfaces.liveness import InstanceRow
    from infloop.store.interfaces.run_log import RunRow

OUTPUT_SEQS = 2_000
"""How far back the last output of a step is looked for."""

MAX_ANCESTORS = 10


class Ancestor(Model, kw_only=True):
    """A run from which another was rewound."""

    run_id: str
    started_at: int
    cause: Cause


class OwnerProcess(Model, kw_only=True):
    """The process that drives a run, or did."""

    id: str
    pid: int | None
    host: str


class NoticeText(Model, kw_only=True):
    """A warning or an error in the run's log."""

    level: Literal["info", "warning", "error"]
    message: str


class StopReason(Model, kw_only=True):
    """Somebody asked for the run to stop."""

    at: int
    reason: str


class LoopRound(Model, kw_only=True):
    """A loop around a step, and the round it is in; `max_rounds` is null if there is no limit."""

    path: str
    round: int
    max_rounds: int | None


class Position(Model, kw_only=True):
    """A step in progress; `uses` says what it works with."""

    path: str
    node_type: str
    started_at: int
    waiting_until: int | None
    uses: str
    loops: list[LoopRound]


class LastStep(Model, kw_only=True):
    """The step that failed the run, or its last one; `nextPath` is the step after it."""

    path: str
    node_type: str
    error: str
    handle: str
    duration_ms: int
    next_path: str


class Ending(Model, kw_only=True):
    """How a run ended. If `interrupted`, its process ended first; it can be resumed."""

    at: int
    duration_ms: int
    error: str
    failed_step: str
    interrupted: bool


class Explanation(Model, kw_only=True):
    """Why a run is what it is.

    `lastOutput` is what the steps in progress, or the last step, printed last. `denials` are things
    that agents were not allowed to do, each with what allows it. `newWorkflow` says whether the run
    went on with another version of its workflow than it began with.
    """

    run: RunSummary
    at: int
    inputs: JsonObject
    workdir: str
    ancestors: list[Ancestor]
    steps_done: int
    cost: RunCost
    resumed_at: list[int]
    notices: list[NoticeText]
    denials: list[str]
    new_workflow: bool
    stop: StopReason | None
    process: OwnerProcess
    last_sign_at: int
    positions: list[Position]
    approvals: list[Approval]
    ending: Ending | None
    reached: str
    last_step: LastStep | None
    last_output: str
    next: list[NextAction]


class Explanations:
    """Gathers the evidence about runs."""

    def __init__(self, resources: Resources, history: RunHistory) -> None:
        self._resources = resources
        self._history = history

    async def explain(self, run_id: str) -> Explanation:
        store = self._resources.store
        row = await store.run_log.run(run_id)
        run = await self._history.summarize(row)
        view = await whole_view(store, run_id)
        return explanation(
            run,
            view,
            at=self._resources.clock.now_ms(),
            owner=row.owner,
            process=await store.liveness.instance(row.owner),
            ancestors=await self._ancestors(row),
            approvals=await self._approvals(run_id) if run.status == "running" else [],
            last_output=await self._last_output(row, view),
        )

    async def _ancestors(self, row: RunRow) -> list[Ancestor]:
        """Return the runs this one was rewound from, nearest first, as far as they are known."""
        found: list[Ancestor] = []
        while row.cause.parent_run and len(found) < MAX_ANCESTORS:
            try:
                row = await self._resources.store.run_log.run(row.cause.parent_run)
            except NotFound:
                break
            found.append(Ancestor(run_id=row.id, started_at=row.started_at, cause=row.cause))
        return found

    async def _approvals(self, run_id: str) -> list[Approval]:
        waiting = await self._resources.approvals().waiting()
        return [each for each in waiting if each.run_id == run_id]

    async def _last_output(self, row: RunRow, view: RunView) -> str:
        paths = {step.path for step in view.positions()} or {view.failed_path()}
        step = next((each for each in view.steps() if each.path in paths), None)
        if step is None:
            return ""
        last = step.last_seq or row.last_seq
        after, text = max(step.seq, last - OUTPUT_SEQS), ""
        while batch := await self._resources.store.run_log.events(row.id, after, last):
            pieces = (
                item.event.text
                for item in batch
                if isinstance(item.event, Output) and item.event.path in paths
            )
            text = (text + "".join(pieces))[-OUTPUT_TAIL_CHARS:]
            after = batch[-1].seq
        return text


def _missing_references(view: RunView) -> list[NoticeText]:
    """Return one warning for each reference that had no value, however often it was used."""
    distinct = {(one.node, one.field, one.missing_key): one for one in view.missing_references}
    return [
        NoticeText(
            level="warning",
            message=f"{{{{{one.missing_key}}}}} in the {one.field} of {one.path} does not exist, "
            "so it is empty",
        )
        for one in distinct.values()
    ]


def explanation(
    run: RunSummary,
    view: RunView,
    *,
    at: int,
    owner: str,
    process: InstanceRow | None,
    ancestors: Sequence[Ancestor] = (),
    approvals: Sequence[Approval] = (),
    last_output: str = "",
) -> Explanation:
    """Return the explanation that follows from the evidence."""
    started, last = view.started, view.last_finished
    heartbeat_at = process.heartbeat_at if process else 0
    return Explanation(
        run=run,
        at=at,
        inputs=started.inputs if started else {},
        workdir=_workdir(view),
        ancestors=list(ancestors),
        steps_done=view.steps_done,
        cost=view.cost,
        # A rewound run begins with a resume.
        resumed_at=view.resumed_at[1 if run.cause.kind == "rewind" else 0 :],
        notices=[
            *_missing_references(view),
            *(NoticeText(level=each.level, message=each.message) for each in view.notices),
        ],
        denials=list(view.denials),
        new_workflow=view.new_workflow,
        stop=StopReason(at=view.stopped_at, reason=view.stop.reason) if view.stop else None,
        process=OwnerProcess(
            id=owner, pid=process.pid if process else None, host=process.host if process else ""
        ),
        last_sign_at=max(heartbeat_at, view.last_at),
        positions=[_position(step) for step in view.positions()],
        approvals=list(approvals),
        ending=_ending(run, view),
        reached=last.path if last else "",
        last_step=_last_step(view),
        last_output=last_output,
        next=next_actions(run.status, view),
    )


def _position(step: StepView) -> Position:
    return Position(
        path=step.path,
        node_type=step.node_type,
        started_at=step.started_at,
        waiting_until=step.waiting_until or None,
        uses=step.uses,
        loops=[
            LoopRound(path=loop.path, round=current, max_rounds=loop.max_rounds)
            for loop, current in step.loops()
        ],
    )


def _ending(run: RunSummary, view: RunView) -> Ending | None:
    finished = view.finished
    if finished is None:
        return None
    return Ending(
        at=run.finished_at or view.finished_at,
        duration_ms=view.finished_at - view.started_at,
        error=finished.error,
        failed_step=finished.failed_step,
        interrupted=finished.interrupted,
    )


def _last_step(view: RunView) -> LastStep | None:
    path = view.failed_path()
    step = next((each for each in view.steps() if each.path == path), None)
    if step is None:
        return None
    return LastStep(
        path=path,
        node_type=step.node_type,
        error=step.error,
        handle=step.handle,
        duration_ms=step.duration_ms,
        next_path=step.next_path,
    )


def _workdir(view: RunView) -> str:
    """Return where the run works: a directory, or a repository at a commit."""
    if view.fetched:
        return f"{view.fetched.repository} at {view.fetched.ref} ({view.fetched.commit[:12]})"
    if view.started and view.started.workspace:
        return f"{view.started.workspace.repository} at {view.started.workspace.ref}"
    return view.started.workdir if view.started else ""
