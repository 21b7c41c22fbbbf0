"""The directory that contains the private directories of children, while the server lives.

It is in the system's temporary directory, because the children's user must be able to enter it. A
killed server leaves it behind, and the next one removes it. A lock file in it shows whether its
server is alive.
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
    """Create a directory that others can enter but not list; remove those of dead servers."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_if_abandoned(path)
    directory = tempfile.mkdtemp(prefix=_PREFIX)
    lock = LockFile(Path(directory) / _LOCK)
    try:
        Path(directory).chmod(0o711)
        yield directory
    finally:
        with contextlib.suppress(FileNotFoundError):
            _remove(Path(directory))
        lock.release()


def _remove_if_abandoned(directory: Path) -> None:
    status = directory.lstat()
    # Any user can create a directory there; only our own are examined.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    with taken_over(directory / _LOCK) as free:
        if free:
            _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a directory, its lock last, so that an interrupted removal is continued later."""
    for path in list(directory.iterdir()):
        if path.name != _LOCK:
            remove_tree(path)
    (directory / _LOCK).unlink()
    directory.rmdir()
