"""Limits for how long to wait for a provider: while it sends nothing, and in total."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

Result = TypeVar("Result")


class Stalled(Exception):
    """Nothing arrived within the idle timeout."""


class TooLong(Exception):
    """The total time is over."""


class IdleTimeout:
    """Limits the time spent waiting since the last `reset`, and the total time; 0 means no limit.

    Time that is spent on processing counts for the total only.
    """

    def __init__(self, limit_ms: int, total_ms: int = 0) -> None:
        self._limit_s = limit_ms / 1000
        self._total_s = total_ms / 1000
        self._waited_s = 0.0
        self._started: float | None = None

    def reset(self) -> None:
        """Start over: something arrived."""
        self._waited_s = 0.0

    async def wait_for(self, awaitable: Awaitable[Result]) -> Result:
        """Await it; raise Stalled or TooLong when a limit is reached."""
        clock = asyncio.get_running_loop().time
        started = clock()
        if self._started is None:
            self._started = started
        stalled_at = started + self._limit_s - self._waited_s if self._limit_s else math.inf
        over_at = self._started + self._total_s if self._total_s else math.inf
        when = min(stalled_at, over_at)
        limit = asyncio.timeout_at(None if when == math.inf else when)
        try:
            async with limit:
                return await awaitable
        except TimeoutError:
            if limit.expired():
                raise (TooLong if over_at <= stalled_at else Stalled) from None
            raise
        finally:
            self._waited_s += clock() - started
