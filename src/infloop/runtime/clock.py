"""The machine's clock, and one that is set by hand."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


class SetClock:
    """A clock that shows what it was set to; for tests and replays."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time it was set to."""
        return self._now_ms

    def forward(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        self._now_ms += ms
