"""A live run's feed: listeners that come together, leave early, or fall behind."""

from __future__ import annotations

import asyncio

from infloop.model.events import Notice, Output, Recorded
from infloop.runtime.runs.feed import RING_CHARS, Feed


class Journal:
    """Holds what was recorded; a read waits until it is let through."""

    def __init__(self, *seqs: int) -> None:
        self.items = [Recorded("r", seq, 1, "c", Notice(str(seq))) for seq in seqs]
        self.reads: list[int] = []
        self.open = asyncio.Event()

    async def read(self, after_seq: int, limit: int) -> list[Recorded]:
        self.reads.append(after_seq)
        found = [each for each in self.items if each.seq > after_seq][:limit]
        await self.open.wait()
        return found


async def heard(feed: Feed, after_seq: int = 0) -> list[int]:
    return [item.seq async for batch in feed.listen(after_seq) for item in batch]


async def waiting(journal: Journal, count: int) -> None:
    while len(journal.reads) < count:
        await asyncio.sleep(0)


async def test_listeners_that_come_together_share_what_is_read() -> None:
    journal = Journal(*range(1, 6))
    feed = Feed(journal.read, 5)
    async with asyncio.TaskGroup() as group:
        first = [group.create_task(heard(feed)) for _ in range(100)]
        later = [group.create_task(heard(feed, 3)) for _ in range(100)]
        await waiting(journal, 2)
        journal.open.set()
        feed.close()
    assert {tuple(each.result()) for each in first} == {(1, 2, 3, 4, 5)}
    assert {tuple(each.result()) for each in later} == {(4, 5)}
    assert journal.reads == [0, 3]


async def test_a_listener_that_leaves_during_a_read_ends_it_for_nobody_else() -> None:
    journal = Journal(1, 2)
    feed = Feed(journal.read, 2)
    async with asyncio.TaskGroup() as group:
        leaves, stays = (group.create_task(heard(feed)) for _ in range(2))
        await waiting(journal, 1)
        leaves.cancel()
        await asyncio.wait([leaves])
        journal.open.set()
        feed.close()
    assert leaves.cancelled()
    assert stays.result() == [1, 2]


async def test_what_happens_during_a_read_that_finds_nothing_is_not_skipped() -> None:
    """A resumed run skips numbers, so a listener may ask for numbers that nothing has."""
    journal = Journal()
    feed = Feed(journal.read, 10_000)
    async with asyncio.TaskGroup() as group:
        one = group.create_task(heard(feed))
        await waiting(journal, 1)
        text = "x" * (2 * RING_CHARS + 1)  # the ring drops it at once: only the journal has it
        item = Recorded("r", 10_001, 1, "c", Output("a", "a", text, "stdout", 0))
        journal.items.append(item)
        feed.publish(item)
        journal.open.set()
        other = group.create_task(heard(feed))
        feed.close()
    assert one.result() == other.result() == [10_001]
