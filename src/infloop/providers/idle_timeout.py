"""A limit for how long to wait for a provider that sends nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

Result = TypeVar("Result")


class Stalled(Exception):
    """Nothing arrived within the idle timeout."""


class IdleTimeout:
    """Limits the total time spent waiting since the last `reset`; 0 means no limit.

    Time that is spent on processing does not count.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_s = limit_ms / 1000
        self._waited_s = 0.0

    def reset(self) -> None:
        """Start over: something arrived."""
        self._waited_s = 0.0

    async def wait_for(self, awaitable: Awaitable[Result]) -> Result:
        """Await it; raise Stalled when the limit is reached."""
        if not self._limit_s:
            return await awaitable
        clock = asyncio.get_running_loop().time
        started = clock()
        limit = asyncio.timeout(self._limit_s - self._waited_s)
        try:
            async with limit:
                return await awaitable
        except TimeoutError:
            if limit.expired():
                raise Stalled from None
            raise
        finally:
            self._waited_s += clock() - started
