"""The files of a workspace, opened beneath its descriptor.

Rules
  * A path is judged by how it is written (`paths`), and then opened by the kernel without following
    a link or leaving the mount of the workspace. Nothing is checked by name and used later.
  * Only regular files are read and written: no pipe, device or socket.
  * A file with several hard links is not written, because its other name may be outside. It is read
    if it belongs to the owner of the workspace: package managers link files from their caches.
  * A file is replaced as a whole, by a rename in its directory. Several files are replaced together
    or not at all.
  * A message names only the path that was given.

Work here blocks: the tools do it in threads.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from infloop.lowlevel.link_free import open_beneath
from infloop.tools.base import ToolError
from infloop.tools.workspace.paths import TOP, directory_path, file_path, written_path
from infloop.workspace.beneath import CREATE_FILE, OPEN_DIRECTORY, OPEN_FILE, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from infloop.lowlevel.link_free import OpenBeneath

MAX_FILE_BYTES = 10 << 20
"""The largest file that is read or written as a whole."""

MAX_ENTRIES = 100_000
"""The largest directory that is listed."""

_Identity: TypeAlias = tuple[int, int, int, int, int]
_NEW = b".infloop-new-"
_REFUSALS = {
    errno.ELOOP: ("path-is-link", "is a link or lies behind one"),
    errno.EXDEV: ("path-crosses-mount", "is on another mount than the workspace"),
    errno.ENOENT: ("not-found", "does not exist"),
    errno.ENOTDIR: ("not-a-directory", "lies behind a file"),
    errno.EISDIR: ("not-a-file", "is a directory"),
    errno.ENXIO: ("not-a-file", "is not a file"),
    errno.ENODEV: ("not-a-file", "is not a file"),
    errno.EACCES: ("permission-denied", "may not be accessed"),
    errno.EPERM: ("permission-denied", "may not be accessed"),
    errno.EROFS: ("permission-denied", "is on a read-only file system"),
    errno.ENAMETOOLONG: ("path-invalid", "has a name that is too long"),
    errno.ENOSPC: ("disk-full", "cannot be written: no space is left"),
    errno.EDQUOT: ("disk-full", "cannot be written: no space is left"),
}


class FileVersion(NamedTuple):
    """A file as it was read."""

    data: bytes
    status: os.stat_result


class Change(NamedTuple):
    """What becomes of one file.

    - Without `data` it is removed.
    - It must still be what was read `before`; without that it must not exist yet.
    - With `overwrite` it may be anything.
    - A new file gets the mode and owner of `like`.
    """

    path: str
    data: bytes | None
    before: FileVersion | None = None
    overwrite: bool = False
    like: os.stat_result | None = None


class Entry(NamedTuple):
    """An entry of a directory. What is neither directory, file nor link has the kind `other`."""

    name: str
    kind: str
    size: int


class _Staged(NamedTuple):
    change: Change
    directory: int
    name: bytes
    new: bytes
    """The name of the file with the new contents; empty for a removal."""


def open_workspace(
    directory: Path | str, *, private: Sequence[Path | str] = (), opener: OpenBeneath = open_beneath
) -> Workspace:
    """Open a workspace; its owner must close it. Raises OSError.

    What is below the `private` paths is neither read nor written, such as the data directory.
    """
    real = os.path.realpath(directory)
    descriptor = os.open(real, OPEN_DIRECTORY)
    inside = (os.path.relpath(os.path.realpath(each), real) for each in private)
    return Workspace(descriptor, real, tuple(inside), opener)


class Workspace:
    """A directory whose files tools read and write; every method but `close` raises ToolError."""

    def __init__(
        self, descriptor: int, directory: str, private: Sequence[str], opener: OpenBeneath
    ) -> None:
        self.directory = directory
        """Its real path, for children that start in it."""
        self._root = descriptor
        self._private = private
        self._open = opener
        self._owner = os.fstat(descriptor).st_uid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; the files stay."""
        os.close(self._root)

    # -- reading -------------------------------------------------------------------------------

    def read(self, path: str, limit: int = MAX_FILE_BYTES) -> FileVersion:
        """Return a file with its contents."""
        path = file_path(path)
        with self._parent(path) as (directory, name):
            return self._read_in(directory, name, path, limit)

    def entries(self, path: str = TOP) -> list[Entry]:
        """Return what is in a directory, sorted by name."""
        path = directory_path(path)
        with self._directory(path, path) as directory:
            return self._entries_in(directory, path)

    def walk(self, path: str = TOP, *, skip: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield the paths of all files below a directory; links, `skip` and mounts are left out."""
        waiting = [directory_path(path)]
        while waiting:
            above = waiting.pop()
            try:
                entries = self.entries(above)
            except ToolError:
                if above == directory_path(path):
                    raise
                continue  # removed, exchanged or another mount
            prefix = "" if above == TOP else f"{above}/"
            waiting += [
                f"{prefix}{each.name}"
                for each in reversed(entries)
                if each.kind == "directory" and each.name not in skip
            ]
            yield from (f"{prefix}{each.name}" for each in entries if each.kind == "file")

    # -- writing -------------------------------------------------------------------------------

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create or replace a file; missing directories are made."""
        self.change([Change(path, data, overwrite=True)])

    def change(self, changes: Sequence[Change]) -> None:
        """Change several files: all of them, or none."""
        made: list[str] = []
        with ExitStack() as stack:
            staged: list[_Staged] = []
            done: list[_Staged] = []
            try:
                for each in changes:
                    staged.append(self._stage(each, made, stack))  # noqa: PERF401  (undone below)
                for item in staged:
                    self._commit(item)
                    done.append(item)
            except BaseException:
                for item in staged:
                    _unlink(item.new, item.directory)
                self._undo(done)
                self._remove_directories(made)
                raise

    def _stage(self, change: Change, made: list[str], stack: ExitStack) -> _Staged:
        """Write the new contents beside the file."""
        path = written_path(change.path)
        data = change.data
        if data is not None and len(data) > MAX_FILE_BYTES:
            raise ToolError(
                "file-too-large", f"{path!r} would be larger than {MAX_FILE_BYTES} bytes"
            )
        if data is not None:
            self._make_parents(path, made)
        directory, name = stack.enter_context(self._parent(path))
        there = _check_replaceable(directory, name, change)
        if data is None:
            return _Staged(change, directory, name, b"")
        with _refusing(path):
            return _Staged(
                change, directory, name, _write_new(directory, data, there or change.like)
            )

    def _commit(self, item: _Staged) -> None:
        _check_replaceable(item.directory, item.name, item.change)
        with _refusing(item.change.path):
            if item.new:
                os.rename(item.new, item.name, src_dir_fd=item.directory, dst_dir_fd=item.directory)
            else:
                os.unlink(item.name, dir_fd=item.directory)

    def _undo(self, done: Sequence[_Staged]) -> None:
        """Put back what was there; only a change among several has something to undo."""
        left = []
        for change, directory, name, _ in reversed(done):
            try:
                if change.before is not None:
                    new = _write_new(directory, *change.before)
                    os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
                else:
                    os.unlink(name, dir_fd=directory)
            except OSError:
                left.append(change.path)
        if left:
            raise ToolError("partly-applied", f"these changes could not be undone: {left}")

    def _make_parents(self, path: str, made: list[str]) -> None:
        above, names = TOP, path.split("/")[:-1]
        for name in names:
            below = name if above == TOP else f"{above}/{name}"
            with self._directory(above, path) as directory, _refusing(path):
                try:
                    os.mkdir(name, dir_fd=directory)
                except FileExistsError:
                    pass
                else:
                    made.append(below)
                    if os.geteuid() == 0:
                        owner = os.fstat(directory)
                        ids = owner.st_uid, owner.st_gid
                        os.chown(name, *ids, dir_fd=directory, follow_symlinks=False)
            above = below

    def _remove_directories(self, made: Sequence[str]) -> None:
        for path in reversed(made):
            with suppress(OSError, ToolError), self._parent(path) as (directory, name):
                os.rmdir(name, dir_fd=directory)

    # -- opening -------------------------------------------------------------------------------

    @contextmanager
    def _directory(self, path: str, shown: str) -> Iterator[int]:
        self._check_private(path)
        with _refusing(shown):
            descriptor = self._open(self._root, os.fsencode(path), OPEN_DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, bytes]]:
        self._check_private(path)
        above, _, name = path.rpartition("/")
        with self._directory(above or TOP, path) as directory:
            yield directory, os.fsencode(name)

    def _check_private(self, path: str) -> None:
        for each in self._private:
            if path == each or path.startswith(f"{each}/"):
                raise ToolError("protected-path", f"{path[:200]!r} belongs to infloop")

    def _read_in(self, directory: int, name: bytes, path: str, limit: int) -> FileVersion:
        with _refusing(path):
            # Looked at first, because opening a device can have an effect.
            _check_file(os.stat(name, dir_fd=directory, follow_symlinks=False), path)
            descriptor = self._open(directory, name, OPEN_FILE | os.O_NOCTTY)
        with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor has no path)
            status = os.fstat(descriptor)
            _check_file(status, path)
            if status.st_nlink > 1 and status.st_uid != self._owner:
                raise ToolError("hard-linked", f"{path[:200]!r} has other names, and another owner")
            with _refusing(path):
                data = file.read(limit + 1)
        if len(data) > limit:
            size = max(status.st_size, len(data))
            raise ToolError(
                "file-too-large", f"{path[:200]!r} has {size} bytes; at most {limit} are read"
            )
        return FileVersion(data, status)

    def _entries_in(self, directory: int, path: str) -> list[Entry]:
        found: list[Entry] = []
        prefix = "" if path == TOP else f"{path}/"
        with _refusing(path), os.scandir(directory) as entries:
            for entry in entries:
                if len(found) == MAX_ENTRIES:
                    raise ToolError(
                        "directory-too-large", f"{path!r} has more than {MAX_ENTRIES} entries"
                    )
                if any(f"{prefix}{entry.name}" == each for each in self._private):
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(Entry(entry.name, _kind(status.st_mode), status.st_size))
        return sorted(found)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISREG(mode):
        return "file"
    return "link" if stat.S_ISLNK(mode) else "other"


def _check_file(status: os.stat_result, path: str) -> None:
    kind = _kind(status.st_mode)
    if kind == "link":
        raise ToolError("path-is-link", f"{path[:200]!r} is a link or lies behind one")
    if kind != "file":
        what = "a directory" if kind == "directory" else "not a file"
        raise ToolError("not-a-file", f"{path[:200]!r} is {what}")


def _check_replaceable(directory: int, name: bytes, change: Change) -> os.stat_result | None:
    """Return the status of a file that may be replaced; None if there is none."""
    shown = repr(change.path[:200])
    with _refusing(change.path):
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            if change.before is None:
                return None
            raise
    _check_file(status, change.path)
    if status.st_nlink > 1:
        raise ToolError(
            "hard-linked",
            f"{shown} has other names (hard links), which may be outside: not written",
        )
    if change.overwrite:
        return status
    if change.before is None:
        raise ToolError("already-exists", f"{shown} exists already")
    if _identity(change.before.status) != _identity(status):
        raise ToolError(
            "changed-meanwhile", f"{shown} has changed since it was read: read it again"
        )
    return status


def _write_new(directory: int, data: bytes, like: os.stat_result | None) -> bytes:
    """Write a new file; return its name. Mode and owner are those of the file `like`."""
    name = _NEW + secrets.token_hex(8).encode()
    descriptor = os.open(name, CREATE_FILE, 0o666, dir_fd=directory)
    try:
        write_all(descriptor, data)
        if os.geteuid() == 0:  # children may run as another user, and it is their workspace
            owner = like or os.fstat(directory)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        if like is not None:
            os.fchmod(descriptor, like.st_mode & 0o777)
    except BaseException:
        _unlink(name, directory)
        raise
    finally:
        os.close(descriptor)
    return name


def _unlink(name: bytes, directory: int) -> None:
    if name:
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)


def _identity(status: os.stat_result) -> _Identity:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Raise ToolError for an error of the system; the text has no other path than this one."""
    try:
        yield
    except OSError as error:
        code, reason = _REFUSALS.get(error.errno or 0, ("file-error", ""))
        reason = reason or f"cannot be used: {os.strerror(error.errno or errno.EIO)}"
        raise ToolError(code, f"{path[:200]!r} {reason}") from None
