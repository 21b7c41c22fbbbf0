"""What happened in the last minute, as one text: times, each with the number of events at it."""

from __future__ import annotations

import msgspec

from infloop.policy.rate import MINUTE_MS

MOST_TIMES = 600
"""How many times there are at most. With a higher limit, times are rounded up to share them."""

EMPTY = "[]"

_decode = msgspec.json.Decoder(list[tuple[int, int]]).decode
_encode = msgspec.json.Encoder().encode


def count_event(stored: str, per_minute: int, now_ms: int) -> tuple[int, str]:
    """Count an event; return how long to wait if it is not allowed, and what to store.

    Times that are more than a minute ahead are of a clock that was set back, and do not count.
    """
    earliest, latest = now_ms - MINUTE_MS, now_ms + MINUTE_MS
    recent = [(at, number) for at, number in _decode(stored) if earliest < at <= latest]
    if sum(number for _, number in recent) >= per_minute:
        return max(1, recent[0][0] - earliest), _encode(recent).decode()
    grain = 1 if per_minute <= MOST_TIMES else MINUTE_MS // MOST_TIMES
    at = -(-now_ms // grain) * grain
    if recent and recent[-1][0] >= at:  # the same time, or the clock was set back a little
        last, number = recent[-1]
        recent[-1] = last, number + 1
    else:
        recent.append((at, 1))
    return 0, _encode(recent).decode()
