"""Caches file stats between scans of a tree, so that only changed files are read again.

- A file counts as unchanged if its times, size, inode and mode are the same. The change time
  (ctime) is decisive, because no program can set it.
- A file read within one clock tick of its last change may change again without a visible
  difference. Such an entry is not `settled`, and the file is read again at the next scan.
- If the cache is missing or broken, the whole tree is read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FINE_TICK_NS = 100_000_000
"""Ten times the longest kernel tick; the clock of the file system may differ from ours."""
_COARSE_TICK_NS = 2_000_000_000
"""Some file systems have a resolution of two seconds."""
_VERSION = 1
_MAX_CACHED_ROOTS = 16
"""The number of roots cached in memory; all are on disk."""


class Leaf(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The stats of a file or link when it was read, and the blob that holds its content."""

    mtime: int
    ctime: int
    size: int
    inode: int
    mode: int
    id: bytes
    settled: bool

    def is_unchanged(self, status: os.stat_result) -> bool:
        """Tell whether the file still has the recorded stats."""
        return (
            self.ctime == status.st_ctime_ns
            and self.mtime == status.st_mtime_ns
            and self.size == status.st_size
            and self.inode == status.st_ino
            and self.mode == status.st_mode
        )


class Folder(msgspec.Struct, array_like=True, frozen=True):
    """A directory, its entries, and the id of its tree object.

    `counts` is the number of times each mode occurs in it, at any depth.
    """

    mode: int
    id: bytes
    leaves: dict[bytes, Leaf]
    folders: dict[bytes, Folder]
    counts: dict[int, int]

    def holds(self, leaves: int, folders: int) -> bool:
        """Tell whether it has this many entries of each kind."""
        return len(self.leaves) == leaves and len(self.folders) == folders

    def leaf(self, path: bytes) -> Leaf | None:
        above, _, name = path.rpartition(b"/")
        holder = self.folder(above)
        return holder.leaves.get(name) if holder else None

    def folder(self, path: bytes) -> Folder | None:
        """Return the directory at `path`; the empty path is this directory."""
        found: Folder | None = self
        for step in path.split(b"/") if path else ():
            found = found.folders.get(step) if found else None
        return found

    def mode_of(self, path: bytes) -> int | None:
        """Return the type and permissions of the entry at `path`."""
        found = self.leaf(path) or self.folder(path)
        return found.mode if found else None

    def modes(self, path: bytes = b"") -> Iterator[tuple[bytes, int]]:
        """Yield every path with its type and permissions, this directory first."""
        yield path, self.mode
        prefix = path + b"/" if path else b""
        for name, leaf in self.leaves.items():
            yield prefix + name, leaf.mode
        for name, below in self.folders.items():
            yield from below.modes(prefix + name)


NO_FOLDER = Folder(0, b"", {}, {}, {})
"""Stands for a directory that does not exist."""


def count_modes(
    mode: int, leaves: dict[bytes, Leaf], folders: dict[bytes, Folder]
) -> dict[int, int]:
    """Return how often each mode occurs in a directory and below it."""
    counts = Counter(leaf.mode for leaf in leaves.values())
    counts[mode] += 1
    for folder in folders.values():
        counts.update(folder.counts)
    return dict(counts)


def changed_files(old: Folder, new: Folder) -> int:
    """Return how many files and links were added, removed or changed between two scans."""
    if old.id == new.id:
        return 0
    changed = sum(
        _differ(old.leaves.get(name), new.leaves.get(name))
        for name in old.leaves.keys() | new.leaves.keys()
    )
    for name in old.folders.keys() | new.folders.keys():
        changed += changed_files(old.folders.get(name, NO_FOLDER), new.folders.get(name, NO_FOLDER))
    return changed


def _differ(one: Leaf | None, other: Leaf | None) -> bool:
    return one is None or other is None or (one.id, one.mode) != (other.id, other.mode)


class _Stored(msgspec.Struct, array_like=True):
    version: int
    root: bytes
    folder: Folder


def make_leaf(status: os.stat_result, blob: bytes, read_at_ns: int) -> Leaf:
    """Return the cache entry of a file with these stats that was read at `read_at_ns`."""
    changed = status.st_ctime_ns
    tick = _FINE_TICK_NS if changed % 1_000_000_000 else _COARSE_TICK_NS
    return Leaf(
        status.st_mtime_ns,
        changed,
        status.st_size,
        status.st_ino,
        status.st_mode,
        blob,
        settled=changed + tick < read_at_ns,
    )


class StatCache:
    """The last scan of each root, in memory and in files that the next process reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._roots: dict[str, Folder] = {}
        self._lock = threading.Lock()

    def get(self, root: str) -> Folder | None:
        """Return the last scan of a root, or None."""
        if root in self._roots:
            return self._roots[root]
        try:
            stored = msgspec.msgpack.decode(self._file(root).read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        fits = stored.version == _VERSION and stored.root == os.fsencode(root)
        return stored.folder if fits else None

    def put(self, root: str, folder: Folder) -> None:
        """Store the scan of a root."""
        with self._lock:
            known = self._roots.pop(root, None)
            self._roots[root] = folder
            if len(self._roots) > _MAX_CACHED_ROOTS:
                del self._roots[next(iter(self._roots))]
        if known is folder:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._file(root)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        temporary.write_bytes(msgspec.msgpack.encode(_Stored(_VERSION, os.fsencode(root), folder)))
        temporary.replace(path)

    def drop(self, root: str) -> None:
        """Drop the scan of a root."""
        with self._lock:
            self._roots.pop(root, None)
        self._file(root).unlink(missing_ok=True)

    def drop_missing(self) -> None:
        """Drop scans of roots that no longer exist, and files that cannot be read."""
        for root in [root for root in list(self._roots) if not os.path.isdir(root)]:  # noqa: PTH112
            self.drop(root)
        for path in self._directory.glob("*"):
            try:
                stored = msgspec.msgpack.decode(path.read_bytes(), type=_Stored)
                gone = not os.path.isdir(stored.root)  # noqa: PTH112  (bytes)
            except (OSError, msgspec.MsgspecError, RecursionError):
                gone = True
            if gone:
                path.unlink(missing_ok=True)

    def _file(self, root: str) -> Path:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        return self._directory / name
