"""What is remembered of a tree between two looks at it, so that only changed files are read again.

A file is taken to be unchanged when its times, size, inode and mode are, with one exception: a file
that was read within a tick of its last change may have changed again in the same tick without a
trace. Such a file is not `settled` and is read again the next time. The change time decides, which
no program can set.

Only a cache: whatever is wrong with it, the tree is read in full.
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
"""Ten times the coarsest kernel tick, for a clock that is not quite ours."""
_COARSE_TICK_NS = 2_000_000_000
"""File systems that count in seconds count in two at worst."""
_VERSION = 1
_MOST_ROOTS = 16
"""How many trees are remembered in memory; all are on disk."""


class Leaf(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A file or link as it was when it was read, and the blob that holds its content."""

    mtime: int
    ctime: int
    size: int
    inode: int
    mode: int
    id: bytes
    settled: bool

    def is_still(self, status: os.stat_result) -> bool:
        """Say whether a file looks now as it looked then."""
        return (
            self.ctime == status.st_ctime_ns
            and self.mtime == status.st_mtime_ns
            and self.size == status.st_size
            and self.inode == status.st_ino
            and self.mode == status.st_mode
        )


class Folder(msgspec.Struct, array_like=True, frozen=True):
    """A directory, everything in it, and the tree object that says so.

    `counts` says how often each mode occurs in it, at any depth.
    """

    mode: int
    id: bytes
    leaves: dict[bytes, Leaf]
    folders: dict[bytes, Folder]
    counts: dict[int, int]

    def holds(self, leaves: int, folders: int) -> bool:
        """Say whether it has that many entries of either kind."""
        return len(self.leaves) == leaves and len(self.folders) == folders

    def leaf(self, path: bytes) -> Leaf | None:
        """Return the file or link at `path`."""
        above, _, name = path.rpartition(b"/")
        holder = self.folder(above)
        return holder.leaves.get(name) if holder else None

    def folder(self, path: bytes) -> Folder | None:
        """Return the directory at `path`; an empty path is this one."""
        found: Folder | None = self
        for step in path.split(b"/") if path else ():
            found = found.folders.get(step) if found else None
        return found

    def mode_of(self, path: bytes) -> int | None:
        """Return the type and permissions of what is at `path`."""
        found = self.leaf(path) or self.folder(path)
        return found.mode if found else None

    def modes(self, path: bytes = b"") -> Iterator[tuple[bytes, int]]:
        """Give everything with its type and permissions, this directory first."""
        yield path, self.mode
        prefix = path + b"/" if path else b""
        for name, leaf in self.leaves.items():
            yield prefix + name, leaf.mode
        for name, below in self.folders.items():
            yield from below.modes(prefix + name)


NOTHING = Folder(0, b"", {}, {}, {})
"""A directory that is not there."""


def count_modes(
    mode: int, leaves: dict[bytes, Leaf], folders: dict[bytes, Folder]
) -> dict[int, int]:
    """Return how often each mode occurs in a directory and everything in it."""
    counts = Counter(leaf.mode for leaf in leaves.values())
    counts[mode] += 1
    for folder in folders.values():
        counts.update(folder.counts)
    return dict(counts)


def changed_files(old: Folder, new: Folder) -> int:
    """Return how many files and links came, went or changed from one reading to another."""
    if old.id == new.id:
        return 0
    changed = sum(
        _differ(old.leaves.get(name), new.leaves.get(name))
        for name in old.leaves.keys() | new.leaves.keys()
    )
    for name in old.folders.keys() | new.folders.keys():
        changed += changed_files(old.folders.get(name, NOTHING), new.folders.get(name, NOTHING))
    return changed


def _differ(one: Leaf | None, other: Leaf | None) -> bool:
    return one is None or other is None or (one.id, one.mode) != (other.id, other.mode)


class _Stored(msgspec.Struct, array_like=True):
    version: int
    root: bytes
    folder: Folder


def remember(status: os.stat_result, blob: bytes, read_at_ns: int) -> Leaf:
    """Return what to remember of a file that looked like `status` and was read at that time."""
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


class Memory:
    """What is remembered of each root, in this process and in files for the next one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._roots: dict[str, Folder] = {}
        self._lock = threading.Lock()

    def recall(self, root: str) -> Folder | None:
        """Return what is remembered of a root."""
        if root in self._roots:
            return self._roots[root]
        try:
            stored = msgspec.msgpack.decode(self._file(root).read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        fits = stored.version == _VERSION and stored.root == os.fsencode(root)
        return stored.folder if fits else None

    def keep(self, root: str, folder: Folder) -> None:
        """Remember a root as it is now."""
        with self._lock:
            known = self._roots.pop(root, None)
            self._roots[root] = folder
            if len(self._roots) > _MOST_ROOTS:
                del self._roots[next(iter(self._roots))]
        if known is folder:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._file(root)
        unseen = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        unseen.write_bytes(msgspec.msgpack.encode(_Stored(_VERSION, os.fsencode(root), folder)))
        unseen.replace(path)

    def forget(self, root: str) -> None:
        """Remember nothing of a root."""
        with self._lock:
            self._roots.pop(root, None)
        self._file(root).unlink(missing_ok=True)

    def forget_missing(self) -> None:
        """Remember nothing of roots that are no more, nor what cannot be read."""
        for root in [root for root in list(self._roots) if not os.path.isdir(root)]:  # noqa: PTH112
            self.forget(root)
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
