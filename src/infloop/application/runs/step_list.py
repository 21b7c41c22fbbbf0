"""All visits of a run's nodes, in the order in which they began, page by page.

`view` keeps the ends of long loops, for a terminal. Here every visit is listed, for a timeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.application.models import Model
from infloop.application.runs.view import step_tokens
from infloop.model.events import (
    Recorded,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    TreeSaved,
)

if TYPE_CHECKING:
    from infloop.store.interfaces.run_log import RunLog

BATCH = 10_000

StepState: TypeAlias = Literal["running", "waiting", "succeeded", "failed"]


class ListedStep(Model, kw_only=True):
    """One visit of a node. `seq` is where it began; `handle` is how it was left.

    `waitUntil` is set while it waits for a time. `files`, `insertions` and `deletions` count what
    it changed; they are null where no snapshot was taken.
    """

    path: str
    node_id: str
    node_type: str
    iteration: int
    attempt: int
    state: StepState
    handle: str
    started_at: int
    duration_ms: int | None
    wait_until: int | None
    error: str
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    files: int | None
    insertions: int | None
    deletions: int | None
    seq: int


class StepPage(Model, kw_only=True):
    """Visits in the order in which they began; pass `next` as `after` to get the following page."""

    steps: list[ListedStep]
    next: int | None = None


async def read_steps(run_log: RunLog, run_id: str, after: int, limit: int) -> StepPage:
    """Return the visits that began after a sequence number."""
    steps: dict[int, ListedStep] = {}
    places: dict[str, int] = {}
    position = 0
    while batch := await run_log.events(run_id, position, limit=BATCH, include_output=False):
        for item in batch:
            _apply(steps, places, item)
        position = batch[-1].seq
    wanted = [step for step in steps.values() if step.seq > after]
    page = wanted[:limit]
    return StepPage(steps=page, next=page[-1].seq if len(wanted) > limit else None)


def _apply(steps: dict[int, ListedStep], places: dict[str, int], item: Recorded) -> None:
    """Take note of one event; `places` says where the open visit of each path is."""
    event = item.event
    match event:
        case StepStarted() | StepPassed():
            seq = places.get(event.path, item.seq)  # after a crash an open step starts again
            steps[seq] = _begun(event, seq, item.time)
            places[event.path] = seq
            if isinstance(event, StepPassed):
                _finish(steps, places, event)
        case StepFinished():
            _finish(steps, places, event)
        case StepWaiting() if event.path in places:
            steps[places[event.path]].state = "waiting"
            steps[places[event.path]].wait_until = event.until
        case TreeSaved(when="after") if event.path in places:
            step = steps[places[event.path]]
            step.files, step.insertions = event.files, event.insertions
            step.deletions = event.deletions
        case _:
            pass


def _begun(event: StepStarted | StepPassed, seq: int, time: int) -> ListedStep:
    return ListedStep(
        path=event.path,
        node_id=event.node,
        node_type=event.node_type,
        iteration=event.iteration,
        attempt=event.attempt if isinstance(event, StepStarted) else 1,
        state="running",
        handle="",
        started_at=time,
        duration_ms=None,
        wait_until=None,
        error="",
        cost_usd=None,
        input_tokens=0,
        output_tokens=0,
        files=None,
        insertions=None,
        deletions=None,
        seq=seq,
    )


def _finish(
    steps: dict[int, ListedStep], places: dict[str, int], event: StepFinished | StepPassed
) -> None:
    step = steps.get(places.pop(event.path, 0))
    if step is None:
        return  # its beginning was dropped with the record of an import
    cost = event.outputs.get("costUsd")
    step.state = "failed" if event.error else "succeeded"
    step.handle, step.error, step.wait_until = event.handle, event.error, None
    step.duration_ms = event.duration_ms if isinstance(event, StepFinished) else 0
    step.cost_usd = float(cost) if isinstance(cost, int | float) else None
    step.input_tokens, step.output_tokens = step_tokens(event.outputs)
