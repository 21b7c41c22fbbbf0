"""Watches directories and yields the paths that changed in them.

One native watch serves all directories, because each takes a thread. A directory that is replaced
by another one at the same path is noticed by its device and inode.
"""

from __future__ import annotations

import stat
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

RESCAN_MS = 2_000
"""How often a watch returns although nothing changed, so that its caller can look around."""

_GATHER_MS = 50
_MAX_GATHER_MS = 400


class WatchedDirectory(NamedTuple):
    """A directory by its resolved path; device and inode tell it from a later one there."""

    path: str
    device: int
    inode: int


def find_directory(path: str) -> WatchedDirectory:
    """Return the directory at `path`; raise OSError, ValueError or RuntimeError without one."""
    root = Path(path).resolve(strict=True)
    str(root).encode()  # the watch knows no other names: raises UnicodeEncodeError, a ValueError
    status = root.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path!r} is not a directory")
    return WatchedDirectory(str(root).rstrip("/"), status.st_dev, status.st_ino)


async def changed_paths(directories: Collection[WatchedDirectory]) -> AsyncGenerator[list[str]]:
    """Yield the full paths that changed, in batches; an empty one at least every `RESCAN_MS`.

    Raises OSError or RuntimeError when a directory cannot be watched.
    """
    from watchfiles import awatch

    batches = awatch(
        *sorted({directory.path for directory in directories}),
        watch_filter=None,
        step=_GATHER_MS,
        debounce=_MAX_GATHER_MS,
        rust_timeout=RESCAN_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    try:
        async with aclosing(batches):
            async for batch in batches:
                yield [path for _, path in batch]
    except ExceptionGroup as group:  # watchfiles waits in a task group; a name that is no text
        raise RuntimeError(str(group.exceptions[0])) from group
