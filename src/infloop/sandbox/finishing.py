"""Work that must be finished although its task is cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def to_the_end(work: Awaitable[None]) -> None:
    """Wait for the end of the work, however often this task is cancelled meanwhile.

    Raises what the work raised, else CancelledError if the task was cancelled.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
