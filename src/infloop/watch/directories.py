"""Finds a directory to watch, and tells it from another one at the same path later."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple


class WatchedDirectory(NamedTuple):
    """A directory by its resolved path; device and inode tell it from a later one there."""

    path: str
    device: int
    inode: int


def find_directory(path: str) -> WatchedDirectory:
    """Return the directory at `path`; raise OSError, ValueError or RuntimeError without one."""
    root = Path(path).resolve(strict=True)
    str(root).encode()  # a trigger's values are text: raises UnicodeEncodeError, a ValueError
    status = root.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path!r} is not a directory")
    return WatchedDirectory(str(root).rstrip("/"), status.st_dev, status.st_ino)
