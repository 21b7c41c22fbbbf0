"""Rate limits that hold for all processes which share the store.

Promises of every implementation:

- In any sixty seconds, no more than the limit is allowed under a name, whichever processes count.
- What is refused is not counted.
- A name is forgotten when it was not used for a day.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from infloop.policy.rate import MAX_KEYS, MINUTE_MS

FORGOTTEN_MS = 86_400_000


class RateLimits(ABC):
    """Counts what happened in the last minute."""

    @abstractmethod
    async def take(self, name: str, per_minute: int, now_ms: int) -> int:
        """Count an event; return 0 if it is allowed, else the milliseconds until the next one is.

        A database of several machines uses its own clock instead of `now_ms`.
        """


class SharedRateLimit:
    """A number of events a minute for each key, in all processes together; 0 means no limit.

    A refusal is remembered for as long as it lasts, so that whoever goes on asking does not reach
    the database.
    """

    def __init__(self, rates: RateLimits, kind: str, per_minute: int) -> None:
        self._rates = rates
        self._kind = kind
        self._per_minute = per_minute
        self._refused_until: dict[str, int] = {}

    async def take(self, key: str, now_ms: int) -> int:
        """Count an event; return 0 if it is allowed, else the seconds until the next one is."""
        if self._per_minute <= 0:
            return 0
        wait = self._refused_until.get(key, 0) - now_ms
        if not 0 < wait <= MINUTE_MS:  # it is over, or the clock was set back
            wait = await self._rates.take(f"{self._kind}:{key}", self._per_minute, now_ms)
            self._remember(key, now_ms + wait if wait else 0)
        return -(-wait // 1000)

    def _remember(self, key: str, refused_until: int) -> None:
        self._refused_until.pop(key, None)
        if refused_until:
            if len(self._refused_until) >= MAX_KEYS:
                self._refused_until.clear()
            self._refused_until[key] = refused_until
