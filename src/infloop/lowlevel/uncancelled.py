"""Wait for work to finish although the waiting task is cancelled, any number of times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def run_uncancelled(work: Awaitable[T]) -> T:
    """Finish `work` and return its result.

    Raises what the work raised. Otherwise CancelledError if this task was cancelled.
    """
    future = asyncio.ensure_future(work)
    cancelled = await wait_uncancelled(future)
    result = future.result()
    if cancelled:
        raise asyncio.CancelledError
    return result


async def wait_uncancelled(future: asyncio.Future[Any]) -> bool:
    """Wait until `future` is done; return whether this task was cancelled meanwhile.

    The caller must raise CancelledError when the answer is true.
    """
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
