"""Decides which of the changed files are the result of a run. `diff` and `apply` both ask here.

- A file belongs to the result if an agent or a script changed it. It comes as it is at the end,
  with what a check, such as a formatter, did to it afterwards.
- A file that only a check changed is left out: a condition, a command, or a program of theirs. So
  is one that the agent removed or changed back, and that a check made again.
- A file that git ignores is left out.
- What is left out comes along when it is asked for by name, or with everything else.
- A repository inside the tree is always left out.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.snapshots.trees import Difference, PathEntry
    from infloop.workspace.worktrees.records import Saved

LeftOutReason: TypeAlias = Literal[
    "git ignores it", "only a check or a command changed it", "it is in a repository of its own"
]


class TreePair(NamedTuple):
    """The files before and after a step, as ids of trees."""

    before: str
    after: str


class Wanted(msgspec.Struct, frozen=True):
    """What comes along although it is not part of the result.

    `names` are paths, directories and patterns such as `*.log`; `everything` needs no name.
    """

    everything: bool = False
    names: tuple[str, ...] = ()


NOTHING_MORE = Wanted()


class Worked(msgspec.Struct, frozen=True):
    """What is known of a directory: its snapshots at both ends, and who changed what between them.

    - `steps` are the trees around each step of an agent or a script, in order; None if nobody knows
      who changed what. Then all changes are the result.
    - `ignored` are the paths that git ignores, directories with a slash.
    """

    first: str
    last: str
    steps: tuple[TreePair, ...] | None = None
    ignored: tuple[str, ...] = ()


def saved_work(saved: Saved, steps: tuple[TreePair, ...] | None = None) -> Worked:
    """Return what is known of a saved worktree."""
    return Worked(saved.base, saved.final, steps, saved.ignored)


class Selection(msgspec.Struct, frozen=True):
    """The changes that are the result, and the other changed paths with the reason.

    Of an ignored directory or a repository, `left_out` has only its own path, with a slash.
    `base` is the tree that the changes apply to. `fitting` are the wanted names that fit a path.
    """

    base: str
    chosen: tuple[Difference, ...] = ()
    left_out: dict[str, LeftOutReason] = msgspec.field(default_factory=dict)
    fitting: frozenset[str] = frozenset()


async def select(store: SnapshotStore, worked: Worked, wanted: Wanted = NOTHING_MORE) -> Selection:
    """Return the result of a run in a directory."""
    base, final = [await store.stored_tree(each) for each in (worked.first, worked.last)]
    found = await store.trees.leaves(base.files, final.files)
    nested = tuple(path.removesuffix(".git") for path in final.metadata.repositories)
    made = None if worked.steps is None else await _made(store, worked.steps)
    chosen: list[Difference] = []
    left_out: dict[str, LeftOutReason] = {}
    fitting: set[str] = set()
    for each in found:
        path = os.fsdecode(each.path)
        names = {name for name in wanted.names if fits(path, name)}
        fitting |= names
        if place := _place(path, nested):
            left_out[place] = "it is in a repository of its own"
        elif wanted.everything or names:
            chosen.append(each)
        elif place := _place(path, worked.ignored):
            left_out[place] = "git ignores it"
        elif made is not None and made.get(each.path, each.old) == each.old:
            left_out[path] = "only a check or a command changed it"
        else:
            chosen.append(each)
    return Selection(base.files, tuple(chosen), left_out, frozenset(fitting))


async def _made(store: SnapshotStore, steps: Sequence[TreePair]) -> dict[bytes, PathEntry | None]:
    """Return the last version that a step left of each path that it changed; None if removed."""
    changed = [pair for pair in steps if pair.before != pair.after]
    return {each.path: each.new for each in await store.trees.successive(changed)}


def fits(path: str, name: str) -> bool:
    """Tell whether a path is this file, below this directory, or fits this pattern."""
    plain = name.removeprefix("./").rstrip("/")
    return path == plain or path.startswith(f"{plain}/") or fnmatchcase(path, plain)


def _place(path: str, places: Sequence[str]) -> str:
    """Return the one of `places` that a path is, or that it is below; empty if there is none."""
    for each in places:
        if path.startswith(each) if each.endswith("/") else path == each:
            return each
    return ""
