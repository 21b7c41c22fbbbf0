"""The system clock, and one for tests and replays."""

from __future__ import annotations

import time


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


class SetClock:
    """A clock that moves only by `forward`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def forward(self, ms: int) -> None:
        self._now_ms += ms
