"""Opens paths without following symbolic links.

A check by name and a later use by name can be separated by somebody who exchanges a directory for a
link in between. What is opened here stays the same thing, however its path changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LINKS = 40


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

    Each part is opened in the directory that was opened before, so a part that is exchanged during
    the call is either opened as it is or refused.
    """
    if not path.startswith("/"):
        raise OSError(errno.EINVAL, "the path is not absolute", path)
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


def _open_part(directory: int, name: str, flags: int) -> int:
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    # O_PATH opens a link itself instead of refusing it.
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return descriptor


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
