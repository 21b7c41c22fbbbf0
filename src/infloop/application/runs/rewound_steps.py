"""Which steps a rewind keeps, and which it runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.model.events import Recorded, StepFinished, StepPassed, StepStarted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.store.interfaces.run_log import RunLog

BATCH = 10_000
MAX_PATHS = 500


class RewoundSteps(Model, kw_only=True):
    """Visits of nodes without steps inside; `paths` are those nearest to where a rewind begins."""

    count: int
    paths: list[str]


async def rewound_steps(
    run_log: RunLog, run_id: str, step: str
) -> tuple[RewoundSteps, RewoundSteps]:
    """Return the steps that a rewind to `step` keeps, and those that it runs again.

    What was open when the step began starts again too: another branch of a parallel.
    """
    kept, again = dict[str, None](), dict[str, None]()
    is_before, position = True, 0
    while batch := await run_log.events(run_id, position, limit=BATCH, include_output=False):
        for item in batch:
            is_before = is_before and not _begins(item, step)
            _sort(item, kept, again, is_before=is_before)
        position = batch[-1].seq
    outer = _containers((*kept, *again))
    before = [path for path in kept if path not in outer]
    after = [path for path in again if path not in outer]
    return (
        RewoundSteps(count=len(before), paths=before[-MAX_PATHS:]),
        RewoundSteps(count=len(after), paths=after[:MAX_PATHS]),
    )


def _begins(item: Recorded, step: str) -> bool:
    event = item.event
    return isinstance(event, StepStarted | StepPassed) and (
        event.path == step or event.path.startswith(f"{step}/")
    )


def _sort(
    item: Recorded, kept: dict[str, None], again: dict[str, None], *, is_before: bool
) -> None:
    event = item.event
    if isinstance(event, StepStarted | StepPassed):
        again.setdefault(event.path)
    if isinstance(event, StepFinished | StepPassed) and is_before:
        again.pop(event.path, None)
        kept.setdefault(event.path)


def _containers(paths: Iterable[str]) -> set[str]:
    """Return the paths of steps that have steps inside."""
    found = set[str]()
    for path in paths:
        frame = path.rpartition("/")[0]
        while frame and (container := _container(frame)) not in found:
            found.add(container)
            frame = container.rpartition("/")[0]
    return found


def _container(frame: str) -> str:
    """Return the step that a frame belongs to: `loop-1` of `loop-1[3]`; a call is its own."""
    mark = {"]": "[", "}": "{"}.get(frame[-1])
    return frame.rpartition(mark)[0] if mark else frame
