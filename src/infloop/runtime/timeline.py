"""Which snapshots a run's directories went through, read from its journal.

A step is named by its path, or by the path of what contains it: a round, a loop, a called workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.model.events import (
    WORKSPACE,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    TreeRestored,
    TreeSaved,
    WorkspaceFetched,
    WorkspaceStored,
    is_within,
    step_path,
)
from infloop.model.nodes import node_model
from infloop.workspace.applying.selection import TreePair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from infloop.model.events import Recorded, RepositoryRef
    from infloop.store.interfaces.run_log import RunLog


class DirectoryWork(NamedTuple):
    """What is recorded of a directory in a run or a step: its snapshots, and whose changes count.

    - `first` and `last` are snapshots; `last` is empty if no step has ended there yet.
    - `steps` are the trees around each step whose files are part of the result, in order. If there
      is no such step, all steps count.
    - `cut_off` are the trees before such steps that did not end.
    - `complete` is false if such a step worked there without snapshots.
    """

    directory: str
    first: str = ""
    last: str = ""
    steps: tuple[TreePair, ...] = ()
    cut_off: tuple[str, ...] = ()
    complete: bool = True


class DirectoryState(NamedTuple):
    """A directory at one point of a run; `head` is the commit that a worktree had checked out.

    `visited` says whether the run had worked there by then.
    """

    directory: str
    snapshot: str
    head: str
    visited: bool


async def directory_work(run_log: RunLog, run_id: str, step: str = "") -> list[DirectoryWork]:
    """Return what is recorded of each directory with snapshots, in a run or a step of it."""
    found: dict[str, _SnapshotReader] = {}
    open_steps: dict[str, _OpenStep] = {}
    unseen: list[str] = []
    async for item in _all_events(run_log, run_id):
        event = item.event
        if isinstance(event, StepStarted):
            open_steps[event.path] = _OpenStep(node_model(event.node_type).makes_result)
        elif isinstance(event, StepFinished):
            ended = open_steps.pop(event.path, None)
            worktree = event.outputs.get("worktreePath")
            if ended and ended.makes_result and not ended.seen and isinstance(worktree, str):
                unseen.append(worktree)
        elif isinstance(event, TreeSaved) and is_within(event.path, step):
            about = open_steps.setdefault(event.path, _OpenStep(makes_result=True))
            about.seen = True
            reader = found.setdefault(event.directory, _SnapshotReader())
            reader.add(event, makes_result=about.makes_result)
    return [reader.work(directory, unseen) for directory, reader in found.items()]


class _OpenStep(msgspec.Struct):
    makes_result: bool
    seen: bool = False


class _SnapshotReader:
    """Pairs the snapshots of one directory by step.

    What a step had changed when it was cut off is seen at its next attempt, if there is one.
    """

    def __init__(self) -> None:
        self._first = self._last = ""
        self._open: dict[str, tuple[str, bool]] = {}
        self._results: list[TreePair] = []
        self._checks: list[TreePair] = []

    def add(self, event: TreeSaved, *, makes_result: bool) -> None:
        self._first = self._first or event.snapshot
        before, counts = self._open.pop(event.path, ("", False))
        if before:
            (self._results if counts else self._checks).append(TreePair(before, event.tree))
        if event.when == "before":
            self._open[event.path] = (event.tree, makes_result)
        else:
            self._last = event.snapshot

    def work(self, directory: str, unseen: Sequence[str]) -> DirectoryWork:
        cut_off = tuple(before for before, counts in self._open.values() if counts)
        return DirectoryWork(
            directory=directory,
            first=self._first,
            last=self._last,
            steps=tuple(self._results if self._results or cut_off else self._checks),
            cut_off=cut_off,
            complete=not any(f"{each}/".startswith(f"{directory}/") for each in unseen),
        )


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


class WorkspaceHistory(NamedTuple):
    """What the journal says of a run's checkout.

    - `states` are its snapshots, the oldest first, each with the step that it belongs to.
    - `others` are the snapshots of other directories.
    - `stored` is the state with which it was put away last, if no step followed.
    """

    source: RepositoryRef
    fetched: WorkspaceFetched | None = None
    states: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()
    stored: WorkspaceStored | None = None

    @property
    def snapshots(self) -> list[str]:
        """All snapshots of the checkout."""
        return list(dict.fromkeys(snapshot for snapshot, _ in self.states))


async def workspace_history(run_log: RunLog, run_id: str) -> WorkspaceHistory | None:
    """Return what the journal says of a run's checkout; None if its workspace is no repository."""
    source: RepositoryRef | None = None
    fetched: WorkspaceFetched | None = None
    stored: WorkspaceStored | None = None
    states: list[tuple[str, str]] = []
    others: list[str] = []
    async for item in _all_events(run_log, run_id):
        match item.event:
            case RunStarted():
                source = item.event.workspace
                if source is None:
                    return None
            case WorkspaceFetched():
                fetched = item.event
            case WorkspaceStored():
                stored = item.event
                states.append((stored.snapshot, "its end"))
            case TreeSaved() | TreeRestored() if item.event.directory == WORKSPACE:
                stored = None
                states.append((item.event.snapshot, item.event.path))
            case TreeSaved():
                others.append(item.event.snapshot)
            case _:
                pass
    if source is None:
        return None
    return WorkspaceHistory(source, fetched, tuple(states), tuple(others), stored)


async def _all_events(run_log: RunLog, run_id: str) -> AsyncIterator[Recorded]:
    after = 0
    while batch := await run_log.events(run_id, after, include_output=False):
        for item in batch:
            yield item
        after = batch[-1].seq
