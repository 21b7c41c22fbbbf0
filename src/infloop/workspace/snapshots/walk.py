"""Reading a whole tree into the object store.

Read is what a person would call the tree: files with their content and mode, links as links, and
directories, the empty ones too. Not read, whatever its type: anything named `.git`. Not read and
reported: sockets, pipes and devices, files above a size, what may not be read, and what lies
deeper than anybody builds by hand.

The tree may change meanwhile. What is read is then a mixture of states, each file whole; a file
that will not keep still is read as it comes and not remembered.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from infloop.errors import StepError
from infloop.workspace import beneath
from infloop.workspace.beneath import FOLDER, READ
from infloop.workspace.snapshots import objects
from infloop.workspace.snapshots.index import NOTHING, Folder, Leaf, count_modes, remember
from infloop.workspace.snapshots.objects import TreeEntry

if TYPE_CHECKING:
    from infloop.workspace.snapshots.objects import Batch
    from infloop.workspace.threads import Stop

DEEPEST = 200
_TRIES = 3
_BLOCK = 1 << 20
_ENCODING = sys.getfilesystemencoding()

Reason: TypeAlias = Literal["special", "too large", "unreadable", "too deep", "our own data"]


class Skipped(NamedTuple):
    """Something that is there and was not read; `path` as `os.fsdecode` gives it."""

    path: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read: larger files are skipped, a larger tree is refused."""

    file_bytes: int = 100 << 20
    files: int = 200_000
    tree_bytes: int = 2 << 30

    @property
    def any_tree(self) -> Limits:
        """The same for files, with no tree too large."""
        return replace(self, files=sys.maxsize, tree_bytes=sys.maxsize)


@dataclass(slots=True)
class Seen:
    """What a walk found beside the files themselves."""

    files: int = 0
    size: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)


class Walk:
    """One walk through a tree; `seen` is what it found beside the files."""

    def __init__(
        self, batch: Batch, limits: Limits, ours: frozenset[tuple[int, int]], stop: Stop
    ) -> None:
        self.seen = Seen()
        self._batch = batch
        self._limits = limits
        self._ours = ours
        self._stop = stop

    def root(self, descriptor: int, old: Folder | None) -> Folder:
        """Read the tree at `descriptor`, knowing how it was before."""
        mode = os.fstat(descriptor).st_mode
        if old is None:  # everything is to be read: only if it is not too much
            self._measure(descriptor, Seen(), 0)
        folder = self._folder(descriptor, b"", mode, old, 0)
        self.seen.skipped.sort()
        self.seen.repositories.sort()
        return folder

    def _measure(self, descriptor: int, seen: Seen, depth: int) -> None:
        """Raise StepError if a tree is too large, before any file of it has been read."""
        self._stop.check()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    known = (status.st_dev, status.st_ino)
                    if not stat.S_ISDIR(status.st_mode):
                        seen.files += 1
                        small = status.st_size <= self._limits.file_bytes
                        seen.size += status.st_size if small else 0
                    elif entry.name != ".git" and known not in self._ours and depth < DEEPEST:
                        with beneath.folder(descriptor, os.fsencode(entry.name)) as inside:
                            self._measure(inside, seen, depth + 1)
        _refuse_too_large(seen, self._limits)

    def _folder(
        self, descriptor: int, path: bytes, mode: int, old: Folder | None, depth: int
    ) -> Folder:
        self._stop.check()
        before = old or NOTHING
        leaves: dict[bytes, Leaf] = {}
        folders: dict[bytes, Folder] = {}
        same = old is not None and old.mode == mode
        with os.scandir(descriptor) as listing:
            entries = list(listing)
        for entry in entries:
            name = entry.name.encode(_ENCODING, "surrogateescape")
            if name == b".git":
                if depth:
                    self.seen.repositories.append(os.fsdecode(path + name))
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
            if not (leaf and leaf.settled and leaf.is_still(status) and leaf.id in self._batch):
                leaf = self._leaf(descriptor, path, name)
                same = False
            if leaf:
                leaves[name] = leaf
        self._count(leaves)
        if old and same and old.holds(len(leaves), len(folders)) and old.id in self._batch:
            return old
        tree = self._batch.tree(_lines(leaves, folders))
        return Folder(mode, tree, leaves, folders, count_modes(mode, leaves, folders))

    def _count(self, leaves: dict[bytes, Leaf]) -> None:
        self.seen.files += len(leaves)
        self.seen.size += sum([leaf.size for leaf in leaves.values()])
        _refuse_too_large(self.seen, self._limits)

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
        if (status.st_dev, status.st_ino) in self._ours:
            self._skip(whole, "our own data")
            return None
        if depth > DEEPEST:
            self._skip(whole, "too deep")
            return None
        try:
            descriptor = os.open(name, FOLDER, dir_fd=above)
        except PermissionError:
            self._skip(whole, "unreadable")
            return None
        except OSError:
            return None  # it is no directory any more
        try:
            return self._folder(descriptor, whole + b"/", status.st_mode, old, depth)
        finally:
            os.close(descriptor)

    def _leaf(self, above: int, path: bytes, name: bytes) -> Leaf | None:
        """Read a file or link, as often as it takes to find it keeping still."""
        leaf: Leaf | None = None
        for _ in range(_TRIES):
            try:
                status = os.stat(name, dir_fd=above, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    return self._link(above, name, status)
                if stat.S_ISREG(status.st_mode):
                    leaf, calm = self._file(above, path, name)
                else:
                    self._skip(path + name, "special")
                    return None
            except PermissionError:
                self._skip(path + name, "unreadable")
                return None
            except FileNotFoundError:
                return None
            except OSError:  # something else has taken its place
                continue
            if calm:
                break
        return leaf

    def _link(self, above: int, name: bytes, status: os.stat_result) -> Leaf:
        read_at = time.time_ns()
        target = os.readlink(name, dir_fd=above)
        return remember(status, self._batch.add("blob", target), read_at)

    def _file(self, above: int, path: bytes, name: bytes) -> tuple[Leaf | None, bool]:
        """Return the file, and whether it kept still while it was read."""
        read_at = time.time_ns()
        descriptor = os.open(name, READ, dir_fd=above)
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
        leaf = remember(before, self._batch.add("blob", content), read_at)
        return leaf, leaf.is_still(after)

    def _skip(self, path: bytes, reason: Reason) -> None:
        self.seen.skipped.append(Skipped(os.fsdecode(path), reason))


def _refuse_too_large(seen: Seen, limits: Limits) -> None:
    if seen.files > limits.files:
        raise StepError(f"the directory holds more than {limits.files} files")
    if seen.size > limits.tree_bytes:
        raise StepError(f"the directory holds more than {limits.tree_bytes >> 20} MiB")


def _content(descriptor: int, limit: int) -> bytes | None:
    """Return all that can be read, None when it is more than `limit`."""
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
    """Return how git writes down the type of a file and whether its owner may execute it."""
    if stat.S_ISLNK(mode):
        return objects.LINK
    return objects.PROGRAM if mode & stat.S_IXUSR else objects.FILE
