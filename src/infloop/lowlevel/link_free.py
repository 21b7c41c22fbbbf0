"""Opens paths without following symbolic links.

A check by name and a later use by name can be separated by somebody who exchanges a directory for a
link in between. What is opened here stays the same thing, however its path changes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterator

_MAX_LINKS = 40

OpenBeneath: TypeAlias = Callable[[int, bytes, int], int]
"""Opens a path in a directory that is open: `open_beneath`, or `walk_beneath`."""

_OPENAT2 = 437  # the same on every architecture
_AT_FDCWD = -100
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_NO_LINKS = _NO_SYMLINKS | _NO_MAGICLINKS
_PARENT = b".."
_HOW = struct.Struct("=QQQ")


class LinkInPathError(OSError):
    """A part of a path is a symbolic link."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "it is a link or lies behind one", path)

    def __str__(self) -> str:
        return (
            f"{self.filename!r} is a link or lies behind one, which a child may have made to get "
            "access there; name the directory itself"
        )


def open_link_free(path: str, flags: int = os.O_PATH) -> int:
    """Open an absolute path; raise LinkInPathError if any part of it is a link.

    A part that is exchanged during the call is either opened as it is or refused. Kernels before
    5.6, and containers that forbid `openat2`, get `walk_link_free`.
    """
    if not path.startswith("/"):
        raise OSError(errno.EINVAL, "the path is not absolute", path)
    if not _has_openat2():
        return walk_link_free(path, flags)
    try:
        return _openat2(_AT_FDCWD, os.fsencode(os.path.normpath(path)), flags, _NO_LINKS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkInPathError(path) from None
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None


def walk_link_free(path: str, flags: int) -> int:
    """Open an absolute path as `open_link_free` does, each part in the one before."""
    names = [name for name in os.path.normpath(path).split("/") if name]
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for position, name in enumerate(names, 1):
        is_last = position == len(names)
        try:
            deeper = _open_part(descriptor, name, flags if is_last else os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            if error.errno == errno.ELOOP or _is_link(descriptor, name):
                raise LinkInPathError(path) from None
            raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


def open_beneath(directory: int, path: bytes, flags: int) -> int:
    """Open a relative path below a directory that is open; creates nothing.

    The kernel refuses links (ELOOP) and everything on another mount (EXDEV), whatever is exchanged
    during the call. Kernels before 5.6, and containers that forbid `openat2`, get `walk_beneath`.
    """
    if not _has_openat2():
        return walk_beneath(directory, path, flags)
    return _openat2(directory, path, flags, _BENEATH | _NO_LINKS | _NO_XDEV)


def walk_beneath(directory: int, path: bytes, flags: int) -> int:
    """Open a relative path as `open_beneath` does, one part after the other.

    A file that is a mount point of its own is not noticed, a directory is.
    """
    names = [name for name in path.split(b"/") if name not in (b"", b".")]
    if path.startswith(b"/") or _PARENT in names:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    device = os.fstat(directory).st_dev
    descriptor = os.dup(directory)
    for position, name in enumerate(names, 1):
        is_last = position == len(names)
        try:
            deeper = _open_part(descriptor, name, flags if is_last else os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            number = errno.ELOOP if _is_link(descriptor, name) else error.errno or errno.EIO
            raise OSError(number, os.strerror(number)) from None
        finally:
            os.close(descriptor)
        descriptor = deeper
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode) and status.st_dev != device:
            os.close(descriptor)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return descriptor


@functools.cache
def _has_openat2() -> bool:
    try:
        os.close(_openat2(_AT_FDCWD, b".", os.O_PATH, _BENEATH))
    except OSError:
        return False
    return True


def _openat2(directory: int, path: bytes, flags: int, resolve: int) -> int:
    if b"\0" in path:
        raise ValueError("embedded null byte")  # as os.open does; the kernel would stop reading
    # Without O_NOFOLLOW: with it, a link at the end is not an ELOOP but what the link is.
    flags = flags & ~os.O_NOFOLLOW | os.O_CLOEXEC
    how = _HOW.pack(flags, 0, resolve)
    while True:
        opened: int = _syscall()(_OPENAT2, directory, path, how, len(how))
        if opened >= 0:
            return opened
        number = _errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


@functools.cache
def _syscall() -> ctypes._NamedFuncPointer:
    import ctypes  # not at the top: most commands open nothing in this way

    found = ctypes.CDLL(None, use_errno=True).syscall
    found.argtypes = (
        *(ctypes.c_long, ctypes.c_long, ctypes.c_char_p),
        *(ctypes.c_char_p, ctypes.c_size_t),
    )
    found.restype = ctypes.c_long
    return found


def _errno() -> int:
    import ctypes

    return ctypes.get_errno()


def visited_paths(path: str) -> Iterator[str]:
    """Yield every path that is visited when this one is resolved, link after link."""
    at, remaining = "", path.split("/")[::-1]
    links = 0
    while remaining and links < _MAX_LINKS:
        name = remaining.pop()
        if name in ("", "."):
            continue
        at = at.rpartition("/")[0] if name == ".." else f"{at}/{name}"
        yield at
        with contextlib.suppress(OSError):
            target = os.readlink(at)  # noqa: PTH115
            links += 1
            remaining += target.split("/")[::-1]
            at = "" if target.startswith("/") else at.rpartition("/")[0]


def _open_part(directory: int, name: str | bytes, flags: int) -> int:
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    # O_PATH opens a link itself instead of refusing it.
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return descriptor


def _is_link(directory: int, name: str | bytes) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
