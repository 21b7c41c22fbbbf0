"""How the directories of a run came to be what they are, as its journal tells it.

A step is named by its path, or by the path of what it is in: a round, a loop, a called workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.model.events import RunResumed, TreeRestored, TreeSaved, step_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from infloop.model.events import Recorded
    from infloop.store.interfaces.run_log import RunLog


class Span(NamedTuple):
    """A directory, from one snapshot of it to another."""

    directory: str
    before: str
    after: str


class Moment(NamedTuple):
    """How a directory was at one moment; `head` is what a worktree had checked out.

    `visited` says whether the run had worked there by then.
    """

    directory: str
    snapshot: str
    head: str
    visited: bool


async def spans(run_log: RunLog, run_id: str, step: str = "") -> list[Span]:
    """Return what a run, or a step of it, did to each directory: from its first look to its last.

    A directory in which nothing has ended yet is not among them.
    """
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    async for item in _every(run_log, run_id):
        event = item.event
        if isinstance(event, TreeSaved) and is_within(event.path, step):
            if event.when == "before":
                first.setdefault(event.directory, event.snapshot)
            else:
                last[event.directory] = event.snapshot
    return [Span(place, first[place], after) for place, after in last.items() if place in first]


async def moments(run_log: RunLog, run_id: str, seq: int) -> list[Moment]:
    """Return how each directory of a run was just before the event at `seq`, a step's beginning.

    A directory that the run came to only later is as it was then. The oldest snapshot is first, so
    that of two directories one inside the other the newer one counts.
    """
    own: dict[str, Recorded] = {}
    earlier: dict[str, Recorded] = {}
    later: dict[str, Recorded] = {}
    path = ""
    async for item in _every(run_log, run_id):
        event = item.event
        if item.seq == seq:
            path = step_path(event)
        if not isinstance(event, TreeSaved | TreeRestored):
            continue
        if item.seq < seq:
            earlier[event.directory] = item
        elif isinstance(event, TreeSaved) and event.when == "before":
            later.setdefault(event.directory, item)
            if event.path == path:
                own.setdefault(event.directory, item)
    known = {**later, **earlier, **own}
    ordered = sorted(known.items(), key=lambda each: each[1].seq)
    return [_moment(item, visited=directory in earlier) for directory, item in ordered]


def _moment(item: Recorded, *, visited: bool) -> Moment:
    event = item.event
    assert isinstance(event, TreeSaved | TreeRestored)
    return Moment(event.directory, event.snapshot, event.head, visited)


async def replaced(run_log: RunLog, run_id: str, after_seq: int) -> list[TreeRestored]:
    """Return the restores after that place in a run which replaced something."""
    found = [item.event async for item in _every(run_log, run_id) if item.seq > after_seq]
    return [each for each in found if isinstance(each, TreeRestored) and each.replaced]


def unfinished(events: Iterable[Recorded]) -> list[TreeRestored]:
    """Return the restores after which the run has not gone on yet: they may be half done."""
    found: list[TreeRestored] = []
    for item in events:
        if isinstance(item.event, RunResumed):
            found.clear()
        elif isinstance(item.event, TreeRestored):
            found.append(item.event)
    return found


def is_within(path: str, step: str) -> bool:
    """Say whether a step is the one that is meant, or inside it; without one, every step is."""
    return not step or path == step or path.startswith((f"{step}/", f"{step}[", f"{step}{{"))


async def _every(run_log: RunLog, run_id: str) -> AsyncIterator[Recorded]:
    after = 0
    while batch := await run_log.events(run_id, after, include_output=False):
        for item in batch:
            yield item
        after = batch[-1].seq
