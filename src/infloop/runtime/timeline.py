"""Which snapshots a run's directories went through, read from its journal.

A step is named by its path, or by the path of what contains it: a round, a loop, a called workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.model.events import RunResumed, TreeRestored, TreeSaved, step_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from infloop.model.events import Recorded
    from infloop.store.interfaces.run_log import RunLog


class SnapshotPair(NamedTuple):
    """The snapshots of a directory before and after a run or a step."""

    directory: str
    before: str
    after: str


class DirectoryState(NamedTuple):
    """A directory at one point of a run; `head` is the commit that a worktree had checked out.

    `visited` says whether the run had worked there by then.
    """

    directory: str
    snapshot: str
    head: str
    visited: bool


async def snapshot_pairs(run_log: RunLog, run_id: str, step: str = "") -> list[SnapshotPair]:
    """Return the first and the last snapshot of each directory in a run or a step of it.

    A directory in which no step has ended yet is left out.
    """
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    async for item in _all_events(run_log, run_id):
        event = item.event
        if isinstance(event, TreeSaved) and is_within(event.path, step):
            if event.when == "before":
                first.setdefault(event.directory, event.snapshot)
            else:
                last[event.directory] = event.snapshot
    return [
        SnapshotPair(directory, first[directory], after)
        for directory, after in last.items()
        if directory in first
    ]


async def directory_states(run_log: RunLog, run_id: str, seq: int) -> list[DirectoryState]:
    """Return how each directory of a run was just before the event at `seq`, the start of a step.

    A directory that the run came to later is returned as it was when the run came to it. The oldest
    snapshot is first: when one directory contains another, the newer snapshot wins.
    """
    own: dict[str, Recorded] = {}
    earlier: dict[str, Recorded] = {}
    later: dict[str, Recorded] = {}
    path = ""
    async for item in _all_events(run_log, run_id):
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
    return [_state(item, visited=directory in earlier) for directory, item in ordered]


def _state(item: Recorded, *, visited: bool) -> DirectoryState:
    event = item.event
    assert isinstance(event, TreeSaved | TreeRestored)
    return DirectoryState(event.directory, event.snapshot, event.head, visited)


async def replacing_restores(run_log: RunLog, run_id: str, after_seq: int) -> list[TreeRestored]:
    """Return the restores of a run after `after_seq` that replaced something."""
    found = [item.event async for item in _all_events(run_log, run_id) if item.seq > after_seq]
    return [each for each in found if isinstance(each, TreeRestored) and each.replaced]


def unfinished_restores(events: Iterable[Recorded]) -> list[TreeRestored]:
    """Return the restores after which the run has not gone on: they may be half done."""
    found: list[TreeRestored] = []
    for item in events:
        if isinstance(item.event, RunResumed):
            found.clear()
        elif isinstance(item.event, TreeRestored):
            found.append(item.event)
    return found


def is_within(path: str, step: str) -> bool:
    """Say whether a path is `step` or inside it; an empty `step` contains every path."""
    return not step or path == step or path.startswith((f"{step}/", f"{step}[", f"{step}{{"))


async def _all_events(run_log: RunLog, run_id: str) -> AsyncIterator[Recorded]:
    after = 0
    while batch := await run_log.events(run_id, after, include_output=False):
        for item in batch:
            yield item
        after = batch[-1].seq
