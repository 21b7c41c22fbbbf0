"""Merges three trees with git in the private store, and returns a tree or the conflicts.

Renames are not detected, so a change never ends up in another file. Nothing but the private store
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.lowlevel.directory_lock import hold_directory
from infloop.workspace.snapshots.changes import EMPTY_TREE, printable
from infloop.workspace.snapshots.trees import PathEntry, write_tree
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.snapshots.trees import Difference, TreeReader

DEFAULT_AUTHOR = "infloop <infloop@localhost>"
_YOURS, _THEIRS = "your version", "the agent's"
_EXPLANATIONS = {
    "content": "both changed the same lines",
    "add/add": "both added it, with different content",
    "modify/delete": "one side changed it, the other deleted it",
    "file/directory": "a file on one side, a directory on the other",
    "binary": "both changed it, and it is not text",
}


class PathConflict(msgspec.Struct, frozen=True):
    """A path (decoded with `os.fsdecode`) that cannot be merged; `kind` is git's name for it."""

    path: str
    kind: str
    detail: str = ""


class MergeConflict(msgspec.Struct, frozen=True):
    """Nothing was applied, because these paths cannot be merged."""

    paths: tuple[PathConflict, ...]

    @property
    def report(self) -> str:
        """An explanation for people, one line for each path."""
        return "\n".join(f"{printable(each.path)}: {_explanation(each)}" for each in self.paths)


def _explanation(conflict: PathConflict) -> str:
    return _EXPLANATIONS.get(conflict.kind, conflict.detail or conflict.kind)


async def merge(
    store: SnapshotStore, trees: TreeReader, base: str, ours: str, theirs: str
) -> str | MergeConflict:
    """Merge the changes from `base` to `theirs` into `ours`; return the tree or the conflicts."""
    root = await commit(store, base, (), "base")
    sides = [await commit(store, tree, (root,), "side") for tree in (ours, theirs)]
    asked = ("merge-tree", "--write-tree", "-z", *sides)
    answer = await store.git.call(trees.context, *asked, accept=(0, 1))
    tree, _, rest = answer.stdout.partition(b"\0")
    if answer.exit_code == 0:
        return tree.decode()
    output = rest.decode("utf-8", "surrogateescape")
    for side, name in zip(sides, (_YOURS, _THEIRS), strict=True):
        output = output.replace(side, name)
    return MergeConflict(tuple(_parse_conflicts(output)))


async def commit(
    store: SnapshotStore,
    tree: str,
    parents: Iterable[str],
    message: str,
    author: str = DEFAULT_AUTHOR,
    at_ms: int = 0,
) -> str:
    """Write a commit to the private store; return its id."""
    signed = f"{' '.join(author.split())} {at_ms // 1000} +0000"
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"author {signed}", f"committer {signed}", "", message.replace("\0", ""), ""]
    return await _write(store, "\n".join(lines).encode("utf-8", "replace"))


async def edit_tree(
    store: SnapshotStore, trees: TreeReader, tree: str, changes: Collection[Difference], *, to: str
) -> str:
    """Write a copy of `tree` in which each changed path has its `old` or `new` entry."""
    listing = await trees.listing(tree)
    folders = {path for path, entry in listing.items() if entry.is_folder}
    entries = {
        path: entry
        for path, entry in listing.items()
        if not entry.is_folder or entry.id == EMPTY_TREE
    }
    # Removals first, so that a file can replace a directory that becomes empty.
    chosen = [(each.path, each.new if to == "new" else each.old) for each in changes]
    for path, entry in sorted(chosen, key=lambda each: each[1] is not None):
        entries.pop(path, None)
        if entry is not None:
            _remove_obstacles(entries, folders, path)
            entries[path] = entry
    store.objects.prepare()
    async with hold_directory(store.directory, shared=True):
        return await in_thread(lambda _: _write_tree(store, entries))


def _remove_obstacles(entries: dict[bytes, PathEntry], folders: set[bytes], path: bytes) -> None:
    """Remove what cannot exist next to a file at `path`: files at its parents, entries below it."""
    if path in folders:
        for below in [other for other in entries if other.startswith(path + b"/")]:
            del entries[below]
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        entries.pop(path, None)


def _write_tree(store: SnapshotStore, entries: dict[bytes, PathEntry]) -> str:
    store.objects.refresh()
    with store.objects.batch() as batch:
        return write_tree(batch, entries)


async def _write(store: SnapshotStore, content: bytes) -> str:
    def work() -> str:
        store.objects.refresh()
        with store.objects.batch() as batch:
            return batch.add("commit", content).hex()

    async with hold_directory(store.directory, shared=True):
        return await in_thread(lambda _: work())


def _parse_conflicts(output: str) -> Iterator[PathConflict]:
    """Parse the output of `merge-tree -z`: the stages of each path, then the messages."""
    seen: set[str] = set()
    tokens = iter(output.partition("\0\0")[2].split("\0"))
    for count in tokens:
        if not count.strip():
            continue
        paths = [next(tokens) for _ in range(int(count))]
        kind, note = next(tokens), next(tokens)
        if kind.startswith("CONFLICT") and paths[-1] not in seen:
            seen.add(paths[-1])
            specific, _, detail = note.partition(": ")
            named = specific if specific.startswith("CONFLICT") else kind
            name = named.removeprefix("CONFLICT (").removesuffix(")")
            yield PathConflict(paths[-1], name, " ".join(detail.split()))
