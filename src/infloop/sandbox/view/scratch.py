"""The directory in which children get private ones, for as long as the server lives.

It lies where temporary files lie, because whoever children run as must be able to enter it. A
server that is killed leaves it behind, with whatever its children had in it; the next one removes
it. It holds a lock file, locked before it appears under its name: one that is free has a dead
owner.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.lowlevel.lock_file import LockFile, taken_over
from infloop.lowlevel.remove_tree import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "infloop-children-"
_LOCK = "lock"


@contextlib.contextmanager
def scratch_directory() -> Iterator[str]:
    """Give a directory that others can enter and not list; remove those that nobody owns."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_if_left(path)
    directory = tempfile.mkdtemp(prefix=_PREFIX)
    lock = LockFile(Path(directory) / _LOCK)
    try:
        Path(directory).chmod(0o711)
        yield directory
    finally:
        with contextlib.suppress(FileNotFoundError):
            _remove(Path(directory))
        lock.release()


def _remove_if_left(directory: Path) -> None:
    facts = directory.lstat()
    # Anyone can make a directory there: only our own is looked into.
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        return
    with taken_over(directory / _LOCK) as free:
        if free:
            _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a directory, its lock last: what is not finished is taken up by the next start."""
    for path in list(directory.iterdir()):
        if path.name != _LOCK:
            remove_tree(path)
    (directory / _LOCK).unlink()
    directory.rmdir()
