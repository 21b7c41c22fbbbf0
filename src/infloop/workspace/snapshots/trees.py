"""Reading the private store: what trees hold, how two of them differ, what blobs contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import NotFound, StoreError
from infloop.workspace.git.commands import Place
from infloop.workspace.snapshots.objects import FOLDER, TreeEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from infloop.workspace.git.commands import Git
    from infloop.workspace.snapshots.objects import Batch

_CHUNK_BYTES = 16 << 20
_NOTHING = b"000000"
_PLAIN = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


class Entry(NamedTuple):
    """What a tree says about a path: git's mode, and the id as hexadecimal digits."""

    mode: bytes
    id: str

    @property
    def is_folder(self) -> bool:
        """Whether it is a directory."""
        return self.mode == FOLDER


class Difference(NamedTuple):
    """A path that two trees do not agree on; a directory and a file are never one path."""

    path: bytes
    old: Entry | None
    new: Entry | None


class Lines(NamedTuple):
    """How many lines a change puts in and takes out; none are counted of binary files."""

    insertions: int
    deletions: int
    binary: bool


class Trees:
    """The store as git reads it; `objects` of other repositories are read with it when given."""

    def __init__(self, git: Git, directory: Path, objects: Sequence[Path] = ()) -> None:
        self._git = git
        self.place = Place(directory, git_dir=directory, objects=tuple(objects))

    def with_objects(self, objects: Sequence[Path]) -> Trees:
        """Return a reader that also sees these object directories."""
        return Trees(self._git, self.place.cwd, objects)

    async def differences(self, old: str, new: str) -> list[Difference]:
        """Return all paths that differ, in order, with every directory that comes or goes."""
        if old == new:
            return []
        raw = await self._diff(old, new, "-r", "-t", "-z", "--raw")
        return [each for each in _differences(raw.split(b"\0")) if not _both_folders(each)]

    async def leaves(self, old: str, new: str) -> list[Difference]:
        """Return the differences that are not about directories."""
        return [each for each in await self.differences(old, new) if not _is_about_folder(each)]

    async def lines(self, old: str, new: str) -> dict[bytes, Lines]:
        """Return how many lines of each file change."""
        raw = await self._diff(old, new, "-r", "-z", "--numstat")
        return dict(_count(token) for token in raw.split(b"\0") if token)

    async def patch(self, old: str, new: str, paths: Sequence[str] = ()) -> str:
        """Return a unified diff for people to read."""
        raw = await self._diff(old, new, "-r", "-p", paths=paths)
        return raw.decode("utf-8", "replace")

    async def listing(self, tree: str) -> dict[bytes, Entry]:
        """Return every path of a tree, the directories too."""
        answer = await self._git.call(self.place, "ls-tree", "-r", "-t", "-z", tree)
        return dict(_listed(token) for token in answer.stdout.split(b"\0") if token)

    async def object(self, name: str) -> bytes:
        """Return the content of one object; `name` may be of the form `tree:path`."""
        return (await self._contents([name]))[0]

    async def blobs(self, ids: Iterable[str]) -> AsyncIterator[list[tuple[str, bytes]]]:
        """Give the content of each blob, some megabytes at a time."""
        for chunk in chunks(await self._sizes(list(ids))):
            yield list(zip(chunk, await self._contents(chunk), strict=True))

    async def _diff(self, old: str, new: str, *how: str, paths: Sequence[str] = ()) -> bytes:
        args = ("diff-tree", *_PLAIN, *how, old, new, "--", *paths)
        return (await self._git.call(self.place, *args)).stdout

    async def _sizes(self, ids: list[str]) -> list[tuple[str, int]]:
        if not ids:
            return []
        how = "--batch-check=%(objectname) %(objectsize)"
        answer = await self._git.call(self.place, "cat-file", how, stdin=_asked(ids))
        sizes = []
        for line in answer.stdout.decode().splitlines():
            name, _, size = line.partition(" ")
            if not size.isdecimal():
                raise NotFound(f"the snapshot store has lost object {name!r}")
            sizes.append((name, int(size)))
        return sizes

    async def _contents(self, names: list[str]) -> list[bytes]:
        answer = await self._git.call(self.place, "cat-file", "--batch", stdin=_asked(names))
        found = list(contents(answer.stdout))
        for name, content in zip(names, found, strict=True):
            if content is None:
                raise NotFound(f"the snapshot store holds no {name!r}: it may have been pruned")
        return [content for content in found if content is not None]


def write_tree(batch: Batch, entries: Mapping[bytes, Entry]) -> str:
    """Write the tree that holds exactly these paths; return its id."""
    return _write(batch, entries, b"").hex()


def _write(batch: Batch, entries: Mapping[bytes, Entry], above: bytes) -> bytes:
    here: list[TreeEntry] = []
    below: dict[bytes, dict[bytes, Entry]] = {}
    for path, entry in entries.items():
        name, _, rest = path.partition(b"/")
        if name in (b"", b".", b"..", b".git"):
            raise StoreError(f"a tree may not hold {above + path!r}")
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
    for about in pairs:
        if about:
            old_mode, new_mode, old_id, new_id, _ = about[1:].split(b" ")
            yield Difference(next(pairs), _entry(old_mode, old_id), _entry(new_mode, new_id))


def _entry(mode: bytes, object_id: bytes) -> Entry | None:
    return None if mode == _NOTHING else Entry(mode.lstrip(b"0"), object_id.decode())


def _is_about_folder(difference: Difference) -> bool:
    entry = difference.new or difference.old
    return entry is not None and entry.is_folder


def _both_folders(difference: Difference) -> bool:
    return bool(difference.old and difference.new and difference.old.is_folder)


def _count(token: bytes) -> tuple[bytes, Lines]:
    insertions, deletions, path = token.split(b"\t", 2)
    if insertions == b"-":
        return path, Lines(0, 0, binary=True)
    return path, Lines(int(insertions), int(deletions), binary=False)


def _listed(token: bytes) -> tuple[bytes, Entry]:
    about, path = token.split(b"\t", 1)
    mode, _, object_id = about.split(b" ")
    return path, Entry(mode.lstrip(b"0"), object_id.decode())


def _asked(names: list[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def contents(answer: bytes) -> Iterator[bytes | None]:
    """Take apart what `cat-file --batch` prints: a head line, the content, a line end."""
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
    """Give names some megabytes at a time, by the size of what they stand for."""
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
