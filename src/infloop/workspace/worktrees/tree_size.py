"""How many files commits are, and how large, found out without writing any of them.

A tree may name another one many times, and that one another: ten lines, ten levels deep, are ten
thousand million files. So every tree is looked at once, and what it amounts to is multiplied.
"""

from __future__ import annotations

from operator import gt
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import StepError
from infloop.workspace.snapshots.trees import chunks, contents
from infloop.workspace.snapshots.walk import DEEPEST
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from infloop.workspace.git.commands import Git, Place
    from infloop.workspace.snapshots.walk import Limits

MOST_OBJECTS = 4_000_000
_ENDLESS = 1 << 60
"""Larger is not told apart: a number that grows with every level takes long to multiply."""
_KIND, _FOLDER, _PART = 0o170000, 0o040000, 0o160000


class Extent(NamedTuple):
    """What a tree amounts to when it is written out; `depth` counts the directories in a row."""

    files: int = 0
    size: int = 0
    depth: int = 0

    def plus(self, below: Extent) -> Extent:
        """Return what it is with another one in it."""
        return Extent(
            min(self.files + below.files, _ENDLESS),
            min(self.size + below.size, _ENDLESS),
            max(self.depth, below.depth + 1),
        )


class _Tree(NamedTuple):
    folders: tuple[str, ...]
    files: tuple[str, ...]


async def refuse_endless(
    git: Git, place: Place, commits: Sequence[str], base: str, limits: Limits
) -> None:
    """Raise StepError if one of the commits is much larger than the one that they began at.

    What it has more may be as much as `limits` say.
    """
    asked = [f"{each}^{{tree}}" for each in (base, *commits)]
    begun, *roots = [name for name, *_ in await _looked_up(git, place, asked)]
    found = await _read(git, place, {begun, *roots})
    extents = await in_thread(lambda _: _extents(*found))
    most = extents[begun].plus(Extent(limits.files, limits.tree_bytes, DEEPEST))
    for commit, root in zip(commits, roots, strict=True):
        if any(map(gt, extents[root], most)):
            raise StepError(
                f"commit {commit} is more than {most.files} files, {most.size} bytes or "
                f"{most.depth} directories in a row when it is checked out"
            )


async def _looked_up(git: Git, place: Place, names: Iterable[str]) -> list[list[str]]:
    """Return id, kind and size of each object; in place of kind and size, that it is missing."""
    asked = "".join(f"{name}\n" for name in names).encode()
    answer = await git.call(place, "cat-file", "--batch-check", stdin=asked)
    return [line.rsplit(" ", 2) for line in answer.stdout.decode().splitlines()]


async def _read(git: Git, place: Place, roots: set[str]) -> tuple[dict[str, _Tree], dict[str, int]]:
    """Return all trees below some, and the sizes of all that is in them."""
    args = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--stdin")
    answer = await git.call(place, *args, stdin="".join(f"{each}\n" for each in roots).encode())
    names = answer.stdout.decode().split()
    if len(names) > MOST_OBJECTS:
        raise StepError(f"they have more than {MOST_OBJECTS} objects")
    there = [each for each in await _looked_up(git, place, names) if each[-1].isdecimal()]
    sizes = {name: int(size) for name, _, size in there}
    trees: dict[str, _Tree] = {}
    for some in chunks([(name, sizes[name]) for name, kind, _ in there if kind == "tree"]):
        asked = "".join(f"{name}\n" for name in some).encode()
        answer = await git.call(place, "cat-file", "--batch", stdin=asked)
        for name, content in zip(some, contents(answer.stdout), strict=True):
            trees[name] = _parsed(content or b"")
    return trees, sizes


def _parsed(content: bytes) -> _Tree:
    folders: list[str] = []
    files: list[str] = []
    for kind, name in _entries(content):
        if kind == _FOLDER:
            folders.append(name)
        elif kind != _PART:
            files.append(name)
    return _Tree(tuple(folders), tuple(files))


def _entries(content: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    while at < len(content):
        end = content.index(b"\0", at) + 1
        mode = content[at : content.index(b" ", at)]
        yield int(mode, 8) & _KIND, content[end : end + 20].hex()
        at = end + 20


def _extents(trees: Mapping[str, _Tree], sizes: Mapping[str, int]) -> dict[str, Extent]:
    """Return what each tree amounts to, those below first."""
    found: dict[str, Extent] = {}
    waiting = list(trees)
    while waiting:
        name = waiting[-1]
        tree = trees[name]
        unknown = [each for each in tree.folders if each in trees and each not in found]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        total = Extent(len(tree.files), sum(sizes.get(each, 0) for each in tree.files))
        for each in tree.folders:
            total = total.plus(found.get(each, Extent()))
        found[name] = total
    return found
