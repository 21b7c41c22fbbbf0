"""Three trees made into one, by git, in the private store: a clean result or the reasons why not.

Paths are merged by name: renames are not guessed, so that nothing turns up in a file that nobody
meant. The result is only stored; nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.lowlevel.directory_lock import hold_directory
from infloop.workspace.snapshots.changes import EMPTY_TREE, printable
from infloop.workspace.snapshots.trees import Entry, write_tree
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.snapshots.trees import Difference, Trees

NOBODY = "infloop <infloop@localhost>"
_YOURS, _THEIRS = "your version", "the agent's"
_EXPLAINED = {
    "content": "both changed the same lines",
    "add/add": "both added it, with different content",
    "modify/delete": "one side changed it, the other deleted it",
    "file/directory": "a file on one side, a directory on the other",
    "binary": "both changed it, and it is not text",
}


@dataclass(frozen=True, slots=True)
class Clash:
    """A path (as `os.fsdecode` gives it) that cannot be merged; `kind` is git's word for why."""

    path: str
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was changed, because these paths cannot be merged."""

    clashes: tuple[Clash, ...]

    @property
    def report(self) -> str:
        """What a person needs to know, one line for each path."""
        lines = [
            f"{printable(clash.path)}: {_EXPLAINED.get(clash.kind, clash.detail or clash.kind)}"
            for clash in self.clashes
        ]
        return "\n".join(lines)


async def merge(
    store: SnapshotStore, trees: Trees, base: str, ours: str, theirs: str
) -> str | Conflict:
    """Merge what changed from `base` to `theirs` into `ours`; return the tree, or the conflicts."""
    root = await commit(store, base, (), "base")
    sides = [await commit(store, tree, (root,), "side") for tree in (ours, theirs)]
    asked = ("merge-tree", "--write-tree", "-z", *sides)
    answer = await store.git.call(trees.place, *asked, accept=(0, 1))
    tree, _, rest = answer.stdout.partition(b"\0")
    if answer.exit_code == 0:
        return tree.decode()
    said = rest.decode("utf-8", "surrogateescape")
    for side, name in zip(sides, (_YOURS, _THEIRS), strict=True):
        said = said.replace(side, name)
    return Conflict(tuple(_clashes(said)))


async def commit(
    store: SnapshotStore,
    tree: str,
    parents: Iterable[str],
    message: str,
    author: str = NOBODY,
    at_ms: int = 0,
) -> str:
    """Write a commit to the private store; return its id."""
    signed = f"{' '.join(author.split())} {at_ms // 1000} +0000"
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"author {signed}", f"committer {signed}", "", message.replace("\0", ""), ""]
    return await _write(store, "\n".join(lines).encode("utf-8", "replace"))


async def edited(
    store: SnapshotStore, trees: Trees, tree: str, changes: Collection[Difference], *, to: str
) -> str:
    """Write the tree that has the `old` or the `new` of each change, and else is like `tree`."""
    listing = await trees.listing(tree)
    folders = {path for path, entry in listing.items() if entry.is_folder}
    kept = {
        path: entry
        for path, entry in listing.items()
        if not entry.is_folder or entry.id == EMPTY_TREE
    }
    # What goes first, so that a file can take the place of a directory that it ends.
    chosen = [(each.path, each.new if to == "new" else each.old) for each in changes]
    for path, entry in sorted(chosen, key=lambda each: each[1] is not None):
        kept.pop(path, None)
        if entry is not None:
            _make_room(kept, folders, path)
            kept[path] = entry
    store.objects.prepare()
    async with hold_directory(store.directory, shared=True):
        return await in_thread(lambda _: _write_tree(store, kept))


def _make_room(kept: dict[bytes, Entry], folders: set[bytes], path: bytes) -> None:
    """Take away what cannot be beside a file at `path`: files above it, files below it."""
    if path in folders:
        for below in [other for other in kept if other.startswith(path + b"/")]:
            del kept[below]
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        kept.pop(path, None)


def _write_tree(store: SnapshotStore, entries: dict[bytes, Entry]) -> str:
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


def _clashes(said: str) -> Iterator[Clash]:
    """Take apart what `merge-tree -z` says: the stages of each path, then note after note."""
    seen: set[str] = set()
    tokens = iter(said.partition("\0\0")[2].split("\0"))
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
            yield Clash(paths[-1], name, " ".join(detail.split()))
