"""File operations beneath a directory, by descriptor.

- Each path component is opened with `openat` and `O_NOFOLLOW`.
- A symbolic link in the path makes the call fail, even if it appears during the call.
- Paths are relative bytes without `.` and `..`.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from infloop.errors import StepError
from infloop.lowlevel.link_free import open_link_free

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, because the file may have been replaced by a pipe without a writer.
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_root(directory: Path) -> Iterator[int]:
    """Open the directory that all other paths are relative to; raise StepError if that fails."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StepError(f"{str(directory)!r} cannot be open_root: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_exact_root(directory: Path) -> Iterator[int]:
    """Like `open_root`, but refuse a path with a link anywhere in it (OSError)."""
    descriptor = open_link_free(str(directory), OPEN_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_directory(root: int, path: bytes) -> Iterator[int]:
    """Open the directory at `path` beneath `root`; an empty path is the root itself."""
    descriptor = os.dup(root)
    try:
        for name in path.split(b"/") if path else ():
            deeper = os.open(name, OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_parent(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Open the directory that contains `path`; yield it with the last component of the path."""
    above, _, name = path.rpartition(b"/")
    with open_directory(root, above) as descriptor:
        yield descriptor, name


def lstat(root: int, path: bytes) -> os.stat_result | None:
    """Return the status of `path` without following links; None if it does not exist."""
    try:
        with open_parent(root, path) as (descriptor, name):
            return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link in the path: nothing behind it is beneath the root
            return None
        raise


def make_directories(root: int, path: bytes, owner: os.stat_result | None = None) -> None:
    """Create the directory `path` and its parents where they are missing.

    With an `owner`, new directories belong to that user and nobody else can enter them.
    """
    made = b""
    for name in path.split(b"/") if path else ():
        with open_directory(root, made) as descriptor, suppress(FileExistsError):
            os.mkdir(name, 0o700 if owner else 0o777, dir_fd=descriptor)
            if owner:
                ids = owner.st_uid, owner.st_gid
                os.chown(name, *ids, dir_fd=descriptor, follow_symlinks=False)
        made = made + b"/" + name if made else name


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def make_accessible(directory: int, name: bytes) -> None:
    """Give the owner read and write permission on a file or directory."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = os.fstat(handle).st_mode
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if mode & wanted != wanted and not stat.S_ISLNK(mode):
            # By descriptor, because chmod by name follows links.
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(mode) | wanted)  # noqa: PTH101
    finally:
        os.close(handle)


def make_writable(descriptor: int) -> int | None:
    """Make a directory writable for its owner; return the old mode if it changed, else None."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & 0o700 == 0o700:
        return None
    os.fchmod(descriptor, mode | 0o700)
    return mode
