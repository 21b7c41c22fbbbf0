"""For how long to wait for somebody who says nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

Result = TypeVar("Result")


class Stalled(Exception):
    """Nothing was said for as long as we wait."""


class Patience:
    """Bounds the time that is spent waiting, in all, since the last word; 0 means no bound.

    Time that we spend on what was said does not count.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_s = limit_ms / 1000
        self._waited_s = 0.0

    def renew(self) -> None:
        """Begin to wait anew: something was said."""
        self._waited_s = 0.0

    async def hold(self, awaited: Awaitable[Result]) -> Result:
        """Wait for something; raise Stalled when patience is used up."""
        if not self._limit_s:
            return await awaited
        clock = asyncio.get_running_loop().time
        began = clock()
        limit = asyncio.timeout(self._limit_s - self._waited_s)
        try:
            async with limit:
                return await awaited
        except TimeoutError:
            if limit.expired():
                raise Stalled from None
            raise
        finally:
            self._waited_s += clock() - began
