"""Writes a child's standard input in pieces, as the child reads it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from infloop.sandbox.keepers.fd_watcher import FdWatcher


async def feed(fd: int, pieces: AsyncIterable[bytes], watcher: FdWatcher) -> None:
    """Write the pieces to `fd` until they end or the child stops reading; close both."""
    iterator = aiter(pieces)
    try:
        async for piece in iterator:
            if not await _write(fd, piece, watcher):
                break
    finally:
        watcher.close_fd(fd)
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


async def _write(fd: int, piece: bytes, watcher: FdWatcher) -> bool:
    """Write one piece; return whether the child still reads."""
    left = memoryview(piece)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await watcher.writable(fd)
        except BrokenPipeError:
            return False
    return True
