"""Which of many equal events deserve a line in a log: the 1st, the 10th, the 100th and so on.

So a million refused requests of one sender are seven lines, and the last one says how many there
were.
"""

from __future__ import annotations

from collections import OrderedDict

from infloop.policy.rate import RateLimit

WINDOW_MS = 3_600_000
"""A key that was quiet for this long starts again."""

_MAX_KEYS = 10_000
_LINES_PER_MINUTE = 60


class Repetitions:
    """Counts events by key. Keys and lines are bounded: a flood from everywhere fills no log."""

    def __init__(self, *, max_keys: int = _MAX_KEYS, per_minute: int = _LINES_PER_MINUTE) -> None:
        self._max_keys = max_keys
        self._lines = RateLimit(per_minute)
        # How many there were, and when the last one was.
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def count(self, key: str, now_ms: int) -> int:
        """Count an event; return the number by now if it deserves a line, else 0."""
        before, last_ms = self._counts.pop(key, (0, now_ms))
        number = before + 1 if abs(now_ms - last_ms) < WINDOW_MS else 1
        self._counts[key] = number, now_ms
        if len(self._counts) > self._max_keys:
            self._counts.popitem(last=False)
        deserves = str(number).strip("0") == "1"
        return number if deserves and not self._lines.take("", now_ms) else 0
