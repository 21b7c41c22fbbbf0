"""What every store promises about rate limits; the fixtures are in `conftest`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from infloop.store.encoding.rates import EMPTY, MOST_TIMES, count_event
from infloop.store.interfaces.rate_limits import RateLimits, SharedRateLimit
from support.stores import NOW, OpenStore


async def test_a_limit_holds_for_all_processes_together(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as one, open_store(tmp_path) as two:
        takes = [store.rates.take("login:", 7, NOW) for store in (one, two) for _ in range(10)]
        waits = await asyncio.gather(*takes)
        assert sum(wait == 0 for wait in waits) == 7
        assert all(0 <= wait <= 60_000 for wait in waits)
        assert await one.rates.take("other", 7, NOW) == 0
    async with open_store(tmp_path) as store:  # it is still known after a restart
        assert await store.rates.take("login:", 7, NOW) > 0


async def test_a_refusal_is_remembered_where_it_was_given(
    open_store: OpenStore, tmp_path: Path
) -> None:
    class Counted(RateLimits):
        asked = 0

        async def take(self, name: str, per_minute: int, now_ms: int) -> int:
            self.asked += 1
            return await store.rates.take(name, per_minute, now_ms)

    async with open_store(tmp_path) as store:
        counted = Counted()
        limit = SharedRateLimit(counted, "webhook", 2)
        waits = [await limit.take("t", NOW + number) for number in range(6)]
        assert waits[:2] == [0, 0]
        assert all(59 <= wait <= 60 for wait in waits[2:])
        assert counted.asked == 3
        assert await limit.take("u", NOW) == 0
        unlimited = SharedRateLimit(counted, "webhook", 0)
        assert [await unlimited.take("t", NOW) for _ in range(5)] == [0] * 5
        assert counted.asked == 4


def test_an_event_counts_for_a_minute_and_a_refusal_not_at_all() -> None:
    stored, allowed = EMPTY, list[int]()
    for now in range(0, 180_000, 7_000):
        wait, stored = count_event(stored, 3, now)
        if wait == 0:
            allowed.append(now)
        else:
            again, _ = count_event(stored, 3, now + wait)
            still, _ = count_event(stored, 3, now + wait - 1)
            assert (again, still) == (0, 1)
    assert all(
        later - earlier >= 60_000 for earlier, later in zip(allowed, allowed[3:], strict=False)
    )
    assert len(allowed) == 9


def test_a_high_limit_is_kept_in_little_space() -> None:
    stored, taken = EMPTY, 0
    for now in range(0, 60_000, 6):
        wait, stored = count_event(stored, 9_000, now)
        taken += wait == 0
    assert taken == 9_000
    assert stored.count("],[") <= MOST_TIMES


def test_a_clock_that_was_set_back_locks_nobody_out() -> None:
    _, stored = count_event(EMPTY, 1, 10_000_000)
    assert count_event(stored, 1, 9_000_000)[0] == 0
