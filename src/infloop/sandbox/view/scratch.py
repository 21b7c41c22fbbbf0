"""The directory in which children get private ones, for as long as the server lives.

It lies where temporary files lie, because whoever children run as must be able to enter it. A
server that is killed leaves it behind, with whatever its children had in it; the next one removes
it. It holds a lock file, locked before it appears under its name: one that is free has a dead
owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.sandbox.view.private_directories import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "infloop-children-"
_LOCK = "lock"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextlib.contextmanager
def scratch_directory() -> Iterator[str]:
    """Give a directory that others can enter and not list; remove those that nobody owns."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_if_left(path)
    directory = tempfile.mkdtemp(prefix=_PREFIX)
    lock = _hold(Path(directory))
    try:
        Path(directory).chmod(0o711)
        yield directory
    finally:
        with contextlib.suppress(FileNotFoundError):
            _remove(Path(directory))
        os.close(lock)


def _hold(directory: Path) -> int:
    unseen = directory / f"{_LOCK}.new"
    lock = os.open(unseen, os.O_CREAT | os.O_EXCL | os.O_RDWR | _FLAGS, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unseen.rename(directory / _LOCK)
    return lock


def _remove_if_left(directory: Path) -> None:
    facts = directory.lstat()
    # Anyone can make a directory there: only our own is looked into.
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        return
    lock = os.open(directory / _LOCK, os.O_RDWR | _FLAGS)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(directory)
    finally:
        os.close(lock)


def _remove(directory: Path) -> None:
    """Remove a directory, its lock last: what is not finished is taken up by the next start."""
    for path in list(directory.iterdir()):
        if path.is_dir() and not path.is_symlink():
            remove_tree(str(path))
        elif path.name != _LOCK:
            path.unlink()
    (directory / _LOCK).unlink()
    directory.rmdir()
