"""Reads a directory tree into the object store.

- Read: files with content and mode, links as links, directories, including empty ones.
- Not read: everything named `.git`.
- Not read, but reported: sockets, pipes and devices, files over the size limit, files without
  read permission, and directories below the maximum depth.

What git has just written into a directory that nobody else uses yet need not be read: its index
says which blob each file holds (`written`).

The tree may change during the scan. Each file is then read completely, but different files may
be from different moments. A file that changes while it is read is not cached.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from infloop.errors import StepError
from infloop.workspace import beneath
from infloop.workspace.beneath import OPEN_DIRECTORY, OPEN_FILE
from infloop.workspace.snapshots import objects
from infloop.workspace.snapshots.objects import TreeEntry
from infloop.workspace.snapshots.stat_cache import NO_FOLDER, Folder, Leaf, count_modes, make_leaf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.workspace.git.index_file import IndexedFile
    from infloop.workspace.snapshots.objects import Batch
    from infloop.workspace.threads import Stop

MAX_DEPTH = 200
_READ_ATTEMPTS = 3
_BLOCK = 1 << 20
_ENCODING = sys.getfilesystemencoding()

SkipReason: TypeAlias = Literal["special", "too large", "unreadable", "too deep", "our own data"]


class Skipped(NamedTuple):
    """A path that exists and was not read; decoded with `os.fsdecode`."""

    path: str
    reason: SkipReason


class TreeLimits(msgspec.Struct, frozen=True):
    """Size limits of a snapshot: a larger file is skipped, a larger tree is refused."""

    file_bytes: int = 100 << 20
    files: int = 200_000
    tree_bytes: int = 2 << 30

    @property
    def bounds_tree(self) -> bool:
        """Whether a tree can be too large."""
        return self.files < sys.maxsize or self.tree_bytes < sys.maxsize

    @property
    def without_tree_limit(self) -> TreeLimits:
        """The same file limit, without a limit on the tree."""
        return replace(self, files=sys.maxsize, tree_bytes=sys.maxsize)


class WalkReport(msgspec.Struct):
    """The totals of a walk, and the paths that were not read."""

    files: int = 0
    size: int = 0
    skipped: list[Skipped] = msgspec.field(default_factory=list)
    repositories: list[str] = msgspec.field(default_factory=list)


class Walk:
    """One walk through a tree; `report` has its totals and the paths that were not read."""

    def __init__(
        self,
        batch: Batch,
        limits: TreeLimits,
        excluded: frozenset[tuple[int, int]],
        stop: Stop,
        written: Mapping[bytes, IndexedFile],
    ) -> None:
        self.report = WalkReport()
        self._written = written
        self._batch = batch
        self._limits = limits
        self._excluded = excluded
        self._stop = stop

    def root(self, descriptor: int, old: Folder | None) -> Folder:
        """Read the tree at `descriptor`; `old` is its last scan."""
        mode = os.fstat(descriptor).st_mode
        if old is None and self._limits.bounds_tree:  # a full read: check the size first
            self._measure(descriptor, WalkReport(), 0)
        folder = self._folder(descriptor, b"", mode, old, 0)
        self.report.skipped.sort()
        self.report.repositories.sort()
        return folder

    def _measure(self, descriptor: int, report: WalkReport, depth: int) -> None:
        """Raise StepError if the tree is too large, before any file is read."""
        self._stop.check()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    identity = (status.st_dev, status.st_ino)
                    if not stat.S_ISDIR(status.st_mode):
                        report.files += 1
                        small = status.st_size <= self._limits.file_bytes
                        report.size += status.st_size if small else 0
                    elif (
                        entry.name != ".git"
                        and identity not in self._excluded
                        and depth < MAX_DEPTH
                    ):
                        with beneath.open_directory(descriptor, os.fsencode(entry.name)) as inside:
                            self._measure(inside, report, depth + 1)
        _refuse_too_large(report, self._limits)

    def _folder(
        self, descriptor: int, path: bytes, mode: int, old: Folder | None, depth: int
    ) -> Folder:
        self._stop.check()
        before = old or NO_FOLDER
        leaves: dict[bytes, Leaf] = {}
        folders: dict[bytes, Folder] = {}
        same = old is not None and old.mode == mode
        with os.scandir(descriptor) as listing:
            entries = list(listing)
        for entry in entries:
            name = entry.name.encode(_ENCODING, "surrogateescape")
            if name == b".git":
                if depth:
                    self.report.repositories.append(os.fsdecode(path + name))
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:
                self._skip(path + name, "unreadable")
                continue
            if stat.S_ISDIR(status.st_mode):
                known = before.folders.get(name)
                found = self._enter(descriptor, path, name, status, known, depth + 1)
                same = same and found is known
                if found:
                    folders[name] = found
                continue
            leaf = before.leaves.get(name)
            if not (leaf and leaf.settled and leaf.is_unchanged(status) and leaf.id in self._batch):
                leaf = self._written_leaf(path + name, status) if self._written else None
                leaf = leaf or self._leaf(descriptor, path, name)
                same = False
            if leaf:
                leaves[name] = leaf
        self._count(leaves)
        if old and same and old.holds(len(leaves), len(folders)) and old.id in self._batch:
            return old
        tree = self._batch.tree(_lines(leaves, folders))
        return Folder(mode, tree, leaves, folders, count_modes(mode, leaves, folders))

    def _count(self, leaves: dict[bytes, Leaf]) -> None:
        self.report.files += len(leaves)
        self.report.size += sum([leaf.size for leaf in leaves.values()])
        _refuse_too_large(self.report, self._limits)

    def _enter(
        self,
        above: int,
        path: bytes,
        name: bytes,
        status: os.stat_result,
        old: Folder | None,
        depth: int,
    ) -> Folder | None:
        whole = path + name
        if (status.st_dev, status.st_ino) in self._excluded:
            self._skip(whole, "our own data")
            return None
        if depth > MAX_DEPTH:
            self._skip(whole, "too deep")
            return None
        try:
            descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=above)
        except PermissionError:
            self._skip(whole, "unreadable")
            return None
        except OSError:
            return None  # it is no longer a directory
        try:
            return self._folder(descriptor, whole + b"/", status.st_mode, old, depth)
        finally:
            os.close(descriptor)

    def _written_leaf(self, path: bytes, status: os.stat_result) -> Leaf | None:
        """Return a file that is as git wrote it, without reading it; None for any other."""
        written = self._written.get(path)
        if (
            written is None
            or not written.is_unchanged(status)
            or status.st_size > self._limits.file_bytes
            or written.id not in self._batch
        ):
            return None
        return make_leaf(status, written.id, time.time_ns())

    def _leaf(self, above: int, path: bytes, name: bytes) -> Leaf | None:
        """Read a file or link; try again if it changes while it is read."""
        leaf: Leaf | None = None
        for _ in range(_READ_ATTEMPTS):
            try:
                status = os.stat(name, dir_fd=above, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    return self._link(above, name, status)
                if stat.S_ISREG(status.st_mode):
                    leaf, unchanged = self._file(above, path, name)
                else:
                    self._skip(path + name, "special")
                    return None
            except PermissionError:
                self._skip(path + name, "unreadable")
                return None
            except FileNotFoundError:
                return None
            except OSError:  # it was replaced meanwhile
                continue
            if unchanged:
                break
        return leaf

    def _link(self, above: int, name: bytes, status: os.stat_result) -> Leaf:
        read_at = time.time_ns()
        target = os.readlink(name, dir_fd=above)
        return make_leaf(status, self._batch.add("blob", target), read_at)

    def _file(self, above: int, path: bytes, name: bytes) -> tuple[Leaf | None, bool]:
        """Return the file, and whether it was unchanged while it was read."""
        read_at = time.time_ns()
        descriptor = os.open(name, OPEN_FILE, dir_fd=above)
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return None, False
            limit = self._limits.file_bytes
            content = _content(descriptor, limit) if before.st_size <= limit else None
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if content is None:
            self._skip(path + name, "too large")
            return None, True
        leaf = make_leaf(before, self._batch.add("blob", content), read_at)
        return leaf, leaf.is_unchanged(after)

    def _skip(self, path: bytes, reason: SkipReason) -> None:
        self.report.skipped.append(Skipped(os.fsdecode(path), reason))


def _refuse_too_large(report: WalkReport, limits: TreeLimits) -> None:
    if report.files > limits.files:
        raise StepError(f"the directory holds more than {limits.files} files")
    if report.size > limits.tree_bytes:
        raise StepError(f"the directory holds more than {limits.tree_bytes >> 20} MiB")


def _content(descriptor: int, limit: int) -> bytes | None:
    """Return the content, or None if it is longer than `limit`."""
    blocks, size = [], 0
    while block := os.read(descriptor, _BLOCK):
        size += len(block)
        if size > limit:
            return None
        blocks.append(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _lines(leaves: dict[bytes, Leaf], folders: dict[bytes, Folder]) -> list[TreeEntry]:
    lines = [TreeEntry(name, git_mode(leaf.mode), leaf.id) for name, leaf in leaves.items()]
    lines += [TreeEntry(name, objects.FOLDER, each.id) for name, each in folders.items()]
    return lines


def git_mode(mode: int) -> bytes:
    """Return git's file mode for the mode of a file or link."""
    if stat.S_ISLNK(mode):
        return objects.LINK
    return objects.EXECUTABLE if mode & stat.S_IXUSR else objects.FILE
