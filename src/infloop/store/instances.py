"""Lock files of processes that own runs.

A process holds a lock on a file of its own. The kernel releases the lock when the process ends,
however it ends. A shared lock on the file proves that its owner is dead.

The file gets its name only when it is already locked, and it is removed only by a process that has
proved its owner dead, so a free file always belongs to a dead owner.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from typing import TYPE_CHECKING

from infloop.store.files import FILE_MODE, private_directory

if TYPE_CHECKING:
    from pathlib import Path


class InstanceLock:
    """A lock file, held by this process."""

    def __init__(self, path: Path) -> None:
        private_directory(path.parent)
        self._path = path
        unseen = path.with_suffix(f".{secrets.token_hex(4)}.new")
        self._descriptor = os.open(
            unseen, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE
        )
        os.fchmod(self._descriptor, FILE_MODE)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unseen.replace(path)

    def release(self) -> None:
        """Remove the file and release the lock."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Say whether a living process holds the lock file at `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _share(descriptor)
    finally:
        os.close(descriptor)


def remove_if_free(path: Path) -> bool:
    """Remove a lock file that nobody holds; say whether it went."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock only: an exclusive one would make the dead owner look alive meanwhile.
        if not _share(descriptor) or not _is_file(descriptor, path):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def _share(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
