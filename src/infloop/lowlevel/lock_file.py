"""Lock files: proof that the process that made one is alive.

- The kernel releases the lock when the process ends, however it ends.
- The file gets its name only after it is locked, so a free file is a dead process's.
- Checking takes a shared lock, so one check never makes another one see a living process.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MODE = 0o600
_CREATE = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe in place of the file must not block.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LockFile:
    """A lock file at `path`, held until `release` or the end of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        unlocked = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
        self._descriptor = os.open(unlocked, _CREATE, _MODE)
        try:
            os.fchmod(self._descriptor, _MODE)  # whatever the umask is
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.replace(path)
        except BaseException:
            os.close(self._descriptor)
            unlocked.unlink(missing_ok=True)
            raise

    def release(self) -> None:
        """Remove the file and release the lock."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Return whether a living process holds the lock file at `path`."""
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def remove_if_free(path: Path) -> bool:
    """Remove the lock file of a dead process; return whether it was removed."""
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return False
    try:
        # The name may by now belong to the file of a living process.
        if not try_lock(descriptor, shared=True) or not _is_file(descriptor, path):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


@contextmanager
def taken_over(path: Path) -> Iterator[bool]:
    """Hold the existing lock file of a dead process; yield False if its process is alive.

    Raises FileNotFoundError when there is none.
    """
    descriptor = os.open(path, _OPEN)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or directory if possible at once; return whether it is locked."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
