"""Limits the number and size of files in commits, without writing any of them.

A tree can refer to another tree many times: ten entries on each of ten levels are ten thousand
million files. So each tree is read once, and its size is multiplied.
"""

from __future__ import annotations

from operator import gt
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import StepError
from infloop.workspace.snapshots.trees import chunks, contents
from infloop.workspace.snapshots.walk import MAX_DEPTH
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from infloop.workspace.git.commands import Git, GitContext
    from infloop.workspace.snapshots.walk import TreeLimits

MAX_OBJECTS = 4_000_000
_CAP = 1 << 60
"""Sizes are capped here: numbers that grow with every level take long to multiply."""
_TYPE_MASK, _FOLDER, _SUBMODULE = 0o170000, 0o040000, 0o160000


class TreeSize(NamedTuple):
    """The size of a tree when it is checked out; `depth` is the number of nested directories."""

    files: int = 0
    size: int = 0
    depth: int = 0

    def with_child(self, below: TreeSize) -> TreeSize:
        """Return the size with another tree inside."""
        return TreeSize(
            min(self.files + below.files, _CAP),
            min(self.size + below.size, _CAP),
            max(self.depth, below.depth + 1),
        )


class _Tree(NamedTuple):
    folders: tuple[str, ...]
    files: tuple[str, ...]


async def check_tree_size(
    git: Git, context: GitContext, commits: Sequence[str], base: str, limits: TreeLimits
) -> None:
    """Raise StepError if a commit exceeds its start commit by more than the limits."""
    asked = [f"{each}^{{tree}}" for each in (base, *commits)]
    start, *roots = [name for name, *_ in await _look_up(git, context, asked)]
    found = await _read(git, context, {start, *roots})
    tree_sizes = await in_thread(lambda _: _tree_sizes(*found))
    allowed = tree_sizes[start].with_child(TreeSize(limits.files, limits.tree_bytes, MAX_DEPTH))
    for commit, root in zip(commits, roots, strict=True):
        if any(map(gt, tree_sizes[root], allowed)):
            raise StepError(
                f"commit {commit} has more than {allowed.files} files, {allowed.size} bytes or "
                f"{allowed.depth} nested directories"
            )


async def _look_up(git: Git, context: GitContext, names: Iterable[str]) -> list[list[str]]:
    """Return id, type and size of each object; a missing object has no type and size."""
    asked = "".join(f"{name}\n" for name in names).encode()
    answer = await git.call(context, "cat-file", "--batch-check", stdin=asked)
    return [line.rsplit(" ", 2) for line in answer.stdout.decode().splitlines()]


async def _read(
    git: Git, context: GitContext, roots: set[str]
) -> tuple[dict[str, _Tree], dict[str, int]]:
    """Return all trees reachable from `roots`, and the sizes of all objects in them."""
    args = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--stdin")
    answer = await git.call(context, *args, stdin="".join(f"{each}\n" for each in roots).encode())
    names = answer.stdout.decode().split()
    if len(names) > MAX_OBJECTS:
        raise StepError(f"the commits have more than {MAX_OBJECTS} objects")
    there = [each for each in await _look_up(git, context, names) if each[-1].isdecimal()]
    sizes = {name: int(size) for name, _, size in there}
    trees: dict[str, _Tree] = {}
    for some in chunks([(name, sizes[name]) for name, kind, _ in there if kind == "tree"]):
        asked = "".join(f"{name}\n" for name in some).encode()
        answer = await git.call(context, "cat-file", "--batch", stdin=asked)
        for name, content in zip(some, contents(answer.stdout), strict=True):
            trees[name] = _parse(content or b"")
    return trees, sizes


def _parse(content: bytes) -> _Tree:
    folders: list[str] = []
    files: list[str] = []
    for kind, name in _entries(content):
        if kind == _FOLDER:
            folders.append(name)
        elif kind != _SUBMODULE:
            files.append(name)
    return _Tree(tuple(folders), tuple(files))


def _entries(content: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    while at < len(content):
        end = content.index(b"\0", at) + 1
        mode = content[at : content.index(b" ", at)]
        yield int(mode, 8) & _TYPE_MASK, content[end : end + 20].hex()
        at = end + 20


def _tree_sizes(trees: Mapping[str, _Tree], sizes: Mapping[str, int]) -> dict[str, TreeSize]:
    """Return the size of each tree, children first."""
    found: dict[str, TreeSize] = {}
    stack = list(trees)
    while stack:
        name = stack[-1]
        tree = trees[name]
        unknown = [each for each in tree.folders if each in trees and each not in found]
        if unknown:
            stack += unknown
            continue
        stack.pop()
        total = TreeSize(len(tree.files), sum(sizes.get(each, 0) for each in tree.files))
        for each in tree.folders:
            total = total.with_child(found.get(each, TreeSize()))
        found[name] = total
    return found
