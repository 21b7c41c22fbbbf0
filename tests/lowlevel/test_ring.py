"""A bounded ring of the newest items."""

import asyncio
from collections.abc import Callable

import pytest

from infloop.lowlevel.ring import Ring


def ring_of(count: int, *, max_items: int = 1000, max_size: int = 1 << 20) -> Ring[str]:
    ring: Ring[str] = Ring(max_items, max_size, len)
    for number in range(count):
        ring.append(str(number))
    return ring


def test_positions_stay_when_items_are_dropped() -> None:
    ring = ring_of(100, max_items=10)
    assert ring.end == 100
    assert 10 <= len(ring) <= 20
    assert ring.read(99, 5) == ["99"]
    assert ring.read(0, 2) == [str(ring.start), str(ring.start + 1)]
    assert ring.read(100, 5) == []


def test_an_append_returns_the_newest_item_that_it_dropped() -> None:
    ring = ring_of(20, max_items=10)
    assert len(ring) == 20
    dropped = ring.append("20")
    assert dropped == str(ring.start - 1)
    assert ring.clear() == "20"
    assert ring.clear() is None
    assert (ring.start, ring.end, len(ring)) == (21, 21, 0)


def test_the_size_of_the_items_is_bounded() -> None:
    ring: Ring[str] = Ring(1000, 10, len)
    for _ in range(50):
        ring.append("12345")
        assert len(ring) <= 4
    for _ in range(50):
        assert ring.append("x" * 100) is not None
        assert len(ring) <= 3
    assert ring.end == 100


def test_a_position_is_found_by_an_ascending_key() -> None:
    ring: Ring[int] = Ring(4, 100, lambda _: 1)
    for number in range(0, 40, 2):
        ring.append(number)
    for value in (31, 32):
        position = ring.position_after(value, lambda item: item)
        assert ring.read(position, 1) == [value // 2 * 2 + 2]
    assert ring.position_after(38, lambda item: item) == ring.end


async def test_readers_are_woken_by_an_append_and_by_wake() -> None:
    ring = ring_of(0)
    wakes: tuple[Callable[[], object], ...] = (lambda: ring.append("x"), ring.wake)
    for wake in wakes:
        readers = [asyncio.create_task(ring.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        assert ring.waiting == 3
        wake()
        await asyncio.gather(*readers)
        assert ring.waiting == 0


async def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    ring = ring_of(0)
    reader = asyncio.create_task(ring.wait())
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert ring.waiting == 0
    ring.append("x")
