"""Files beneath a directory, reached by descriptor.

Every step down is an `openat` that refuses links, from a descriptor that is already beneath. A
link put in the way at any moment makes the call fail; it cannot lead it elsewhere. Paths are the
bytes the kernel knows, relative, without `.` and `..`.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from infloop.errors import StepError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not to wait for a writer, should a pipe have taken the place of the file.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """Open the directory that is to be the root of everything else."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StepError(f"{str(directory)!r} cannot be opened: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def folder(root: int, path: bytes) -> Iterator[int]:
    """Open the directory at `path` beneath `root`; an empty path is the root itself."""
    descriptor = os.dup(root)
    try:
        for name in path.split(b"/") if path else ():
            deeper = os.open(name, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def parent(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Open the directory that holds `path`; give it with the last name of the path."""
    above, _, name = path.rpartition(b"/")
    with folder(root, above) as descriptor:
        yield descriptor, name


def look(root: int, path: bytes) -> os.stat_result | None:
    """Return what stands at `path`, a link being itself; None when there is nothing."""
    try:
        with parent(root, path) as (descriptor, name):
            return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link on the way: beneath it there is nothing of ours
            return None
        raise


def make_folders(root: int, path: bytes, owner: os.stat_result | None = None) -> None:
    """Make sure there is a directory at `path`, making those that lead to it.

    With an `owner`, what is made is theirs alone.
    """
    made = b""
    for name in path.split(b"/") if path else ():
        with folder(root, made) as descriptor, suppress(FileExistsError):
            os.mkdir(name, 0o700 if owner else 0o777, dir_fd=descriptor)
            if owner:
                ids = owner.st_uid, owner.st_gid
                os.chown(name, *ids, dir_fd=descriptor, follow_symlinks=False)
        made = made + b"/" + name if made else name


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def open_up(directory: int, name: bytes) -> None:
    """Let the owner read and change a file or directory that may allow neither."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = os.fstat(handle).st_mode
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if mode & wanted != wanted and not stat.S_ISLNK(mode):
            # Through the descriptor, because chmod by name would follow a link.
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(mode) | wanted)  # noqa: PTH101
    finally:
        os.close(handle)


def make_writable(descriptor: int) -> int | None:
    """Let the owner change a directory; return the mode it had, None when it was so already."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & 0o700 == 0o700:
        return None
    os.fchmod(descriptor, mode | 0o700)
    return mode
