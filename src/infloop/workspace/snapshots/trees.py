"""Reads the private store: the paths of trees, their differences, the content of blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import NotFound, StoreError
from infloop.workspace.git.commands import GitContext
from infloop.workspace.snapshots.objects import FOLDER, TreeEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from infloop.workspace.git.commands import Git
    from infloop.workspace.snapshots.objects import Batch

_CHUNK_BYTES = 16 << 20
_NOTHING = b"000000"
_PLAIN = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


class PathEntry(NamedTuple):
    """The entry of a path in a tree: git's file mode, and the object id in hexadecimal."""

    mode: bytes
    id: str

    @property
    def is_folder(self) -> bool:
        return self.mode == FOLDER


class Difference(NamedTuple):
    """A path that differs between two trees; a directory and a file never share one difference."""

    path: bytes
    old: PathEntry | None
    new: PathEntry | None


class LineCounts(NamedTuple):
    """The number of lines added and removed; both are 0 for binary files."""

    insertions: int
    deletions: int
    binary: bool


class TreeReader:
    """Reads the store through git; `objects` are object directories to read in addition."""

    def __init__(self, git: Git, directory: Path, objects: Sequence[Path] = ()) -> None:
        self._git = git
        self.context = GitContext(directory, git_dir=directory, objects=tuple(objects))

    def with_objects(self, objects: Sequence[Path]) -> TreeReader:
        """Return a reader that also reads these object directories."""
        return TreeReader(self._git, self.context.cwd, objects)

    async def differences(self, old: str, new: str) -> list[Difference]:
        """Return all differing paths in order, including directories that are added or removed."""
        if old == new:
            return []
        raw = await self._diff(old, new, "-r", "-t", "-z", "--raw")
        return [each for each in _differences(raw.split(b"\0")) if not _both_folders(each)]

    async def leaves(self, old: str, new: str) -> list[Difference]:
        """Return the differences of files and links."""
        return [each for each in await self.differences(old, new) if not _is_about_folder(each)]

    async def successive(self, pairs: Sequence[tuple[str, str]]) -> list[Difference]:
        """Return the differences of files and links of each pair of trees, one pair after another.

        One process reads them all, so that a run of a thousand steps is read as fast as one of ten.
        """
        if not pairs:
            return []
        asked = "".join(f"{old} {new}\n" for old, new in pairs).encode()
        how = ("diff-tree", *_PLAIN, "-r", "-t", "-z", "--raw", "--stdin")
        answer = await self._git.call(self.context, *how, stdin=asked)
        found = _differences(answer.stdout.split(b"\0"))
        return [each for each in found if not _is_about_folder(each)]

    async def lines(self, old: str, new: str) -> dict[bytes, LineCounts]:
        """Return the number of changed lines of each file."""
        raw = await self._diff(old, new, "-r", "-z", "--numstat")
        return dict(_count(token) for token in raw.split(b"\0") if token)

    async def patch(self, old: str, new: str, paths: Sequence[str] = ()) -> str:
        """Return a unified diff."""
        raw = await self._diff(old, new, "-r", "-p", paths=paths)
        return raw.decode("utf-8", "replace")

    async def listing(self, tree: str) -> dict[bytes, PathEntry]:
        """Return every path of a tree, including directories."""
        answer = await self._git.call(self.context, "ls-tree", "-r", "-t", "-z", tree)
        return dict(_listed(token) for token in answer.stdout.split(b"\0") if token)

    async def object(self, name: str) -> bytes:
        """Return the content of an object; `name` may have the form `tree:path`."""
        return (await self._contents([name]))[0]

    async def blobs(self, ids: Iterable[str]) -> AsyncIterator[list[tuple[str, bytes]]]:
        """Yield the content of each blob, in chunks of some megabytes."""
        for chunk in chunks(await self._sizes(list(ids))):
            yield list(zip(chunk, await self._contents(chunk), strict=True))

    async def _diff(self, old: str, new: str, *how: str, paths: Sequence[str] = ()) -> bytes:
        args = ("diff-tree", *_PLAIN, *how, old, new, "--", *paths)
        return (await self._git.call(self.context, *args)).stdout

    async def _sizes(self, ids: list[str]) -> list[tuple[str, int]]:
        if not ids:
            return []
        how = "--batch-check=%(objectname) %(objectsize)"
        answer = await self._git.call(self.context, "cat-file", how, stdin=_stdin_lines(ids))
        sizes = []
        for line in answer.stdout.decode().splitlines():
            name, _, size = line.partition(" ")
            if not size.isdecimal():
                raise _missing(name)
            sizes.append((name, int(size)))
        return sizes

    async def _contents(self, names: list[str]) -> list[bytes]:
        answer = await self._git.call(
            self.context, "cat-file", "--batch", stdin=_stdin_lines(names)
        )
        found = list(contents(answer.stdout))
        for name, content in zip(names, found, strict=True):
            if content is None:
                raise _missing(name)
        return [content for content in found if content is not None]


def write_tree(batch: Batch, entries: Mapping[bytes, PathEntry]) -> str:
    """Write the tree that consists of exactly these paths; return its id."""
    return _write(batch, entries, b"").hex()


def _write(batch: Batch, entries: Mapping[bytes, PathEntry], above: bytes) -> bytes:
    here: list[TreeEntry] = []
    below: dict[bytes, dict[bytes, PathEntry]] = {}
    for path, entry in entries.items():
        name, _, rest = path.partition(b"/")
        if name in (b"", b".", b"..", b".git"):
            raise StoreError(f"a tree must not contain {above + path!r}")
        if rest:
            below.setdefault(name, {})[rest] = entry
        else:
            here.append(TreeEntry(name, entry.mode, bytes.fromhex(entry.id)))
    for name, inside in below.items():
        tree = _write(batch, inside, above + name + b"/")
        here.append(TreeEntry(name, FOLDER, tree))
    return batch.tree(here)


def _differences(tokens: list[bytes]) -> Iterator[Difference]:
    pairs = iter(tokens)
    for token in pairs:
        about = token.rpartition(b"\n")[2]  # several pairs of trees: each is named on a line
        if about:
            old_mode, new_mode, old_id, new_id, _ = about[1:].split(b" ")
            yield Difference(next(pairs), _entry(old_mode, old_id), _entry(new_mode, new_id))


def _entry(mode: bytes, object_id: bytes) -> PathEntry | None:
    return None if mode == _NOTHING else PathEntry(mode.lstrip(b"0"), object_id.decode())


def _is_about_folder(difference: Difference) -> bool:
    entry = difference.new or difference.old
    return entry is not None and entry.is_folder


def _both_folders(difference: Difference) -> bool:
    return bool(difference.old and difference.new and difference.old.is_folder)


def _count(token: bytes) -> tuple[bytes, LineCounts]:
    insertions, deletions, path = token.split(b"\t", 2)
    if insertions == b"-":
        return path, LineCounts(0, 0, binary=True)
    return path, LineCounts(int(insertions), int(deletions), binary=False)


def _listed(token: bytes) -> tuple[bytes, PathEntry]:
    about, path = token.split(b"\t", 1)
    mode, _, object_id = about.split(b" ")
    return path, PathEntry(mode.lstrip(b"0"), object_id.decode())


def _missing(name: str) -> NotFound:
    return NotFound(f"object {name!r} is missing from the snapshot store: it may have been pruned")


def _stdin_lines(names: list[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def contents(answer: bytes) -> Iterator[bytes | None]:
    """Parse the output of `cat-file --batch`; yield None for a missing object."""
    at = 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        head = answer[at:end].split(b" ")
        if len(head) != 3 or not head[2].isdigit():
            yield None
            at = end + 1
            continue
        size = int(head[2])
        yield answer[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


def chunks(sizes: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Group names into chunks whose objects have some megabytes in total."""
    chunk: list[str] = []
    total = 0
    for name, size in sizes:
        if chunk and total + size > _CHUNK_BYTES:
            yield chunk
            chunk, total = [], 0
        chunk.append(name)
        total += size
    if chunk:
        yield chunk
