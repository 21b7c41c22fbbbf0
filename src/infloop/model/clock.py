"""The interface of clocks. Everything that needs the time is given one."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
