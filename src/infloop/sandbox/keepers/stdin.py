"""A child's input that comes in pieces: written as the child takes it, then closed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from infloop.sandbox.keepers.fd_watcher import Readiness


async def feed(fd: int, pieces: AsyncIterable[bytes], readiness: Readiness) -> None:
    """Write the pieces to `fd` until there are no more or nobody reads them; close both."""
    iterator = aiter(pieces)
    try:
        async for piece in iterator:
            if not await _write(fd, piece, readiness):
                break
    finally:
        readiness.close_fd(fd)
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


async def _write(fd: int, piece: bytes, readiness: Readiness) -> bool:
    """Write one piece, however long the child takes; return whether the child still reads."""
    left = memoryview(piece)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await readiness.writable(fd)
        except BrokenPipeError:
            return False
    return True
