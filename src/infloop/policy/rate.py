"""Rate limits over a sliding window of sixty seconds.

The times of the last minute are remembered for each key. (A token bucket would allow twice the
limit in its first minute.) Memory is bounded: the key that was idle longest is dropped.
"""

from __future__ import annotations

from collections import OrderedDict, deque

MINUTE_MS = 60_000
MAX_KEYS = 10_000
# Above this limit, events are grouped to save memory.
_EXACT_UP_TO = 6_000
_COARSE_MS = 10


class RateLimit:
    """A number of events a minute for each key; 0 means no limit. The caller passes the time."""

    def __init__(self, per_minute: int, *, max_keys: int = MAX_KEYS) -> None:
        self.per_minute = per_minute
        self._max_keys = max_keys
        self._grain = 1 if per_minute <= _EXACT_UP_TO else _COARSE_MS
        self._recent: OrderedDict[str, _Recent] = OrderedDict()

    def take(self, key: str, now_ms: int) -> int:
        """Count an event; return 0 if it is allowed, else the seconds until the next one is."""
        if self.per_minute <= 0:
            return 0
        recent = self._recent.get(key)
        if recent is None:
            recent = self._recent[key] = _Recent()
            if len(self._recent) > self._max_keys:
                self._recent.popitem(last=False)
        self._recent.move_to_end(key)
        recent.forget(now_ms)
        if recent.count >= self.per_minute:
            return max(1, -(-(recent.oldest_ms + MINUTE_MS - now_ms) // 1000))
        recent.add(-(-now_ms // self._grain) * self._grain)
        return 0

    def __len__(self) -> int:
        return len(self._recent)


class _Recent:
    """The times of the events of the last minute, with the number at each time."""

    __slots__ = ("_times", "count")

    def __init__(self) -> None:
        self._times: deque[list[int]] = deque()
        self.count = 0

    @property
    def oldest_ms(self) -> int:
        return self._times[0][0]

    def forget(self, now_ms: int) -> None:
        if self._times and self._times[-1][0] > now_ms + MINUTE_MS:
            # The clock was set back by more than a minute: start again.
            self._times.clear()
            self.count = 0
        while self._times and self._times[0][0] <= now_ms - MINUTE_MS:
            self.count -= self._times.popleft()[1]

    def add(self, at_ms: int) -> None:
        self.count += 1
        if self._times and self._times[-1][0] >= at_ms:  # the same time, or the clock was set back
            self._times[-1][1] += 1
        else:
            self._times.append([at_ms, 1])
