"""A live run's events and output, for any number of listeners.

A ring buffer holds the newest part of the run's sequence. A listener is a position in it.

- Publishing costs the same for any number of listeners. Without listeners the ring stays empty.
- A listener that comes late or falls behind reads from the journal until it has caught up.
- A listener that never reads costs nothing and misses nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.lowlevel.ring import Ring
from infloop.model.events import Output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from infloop.model.events import Recorded

    ReadJournal = Callable[[int, int], Awaitable[list[Recorded]]]

RING_ITEMS = 8192
RING_CHARS = 4 << 20
MAX_BATCH = 1024


class Feed:
    """The live end of one run's sequence."""

    def __init__(
        self,
        read_journal: ReadJournal,
        last_seq: int = 0,
        forward: Callable[[Recorded], None] | None = None,
    ) -> None:
        """Call `forward` with every item too."""
        self._read_journal = read_journal
        self._forward = forward
        self._ring: Ring[Recorded] = Ring(RING_ITEMS, RING_CHARS, _chars)
        self._dropped_seq = last_seq
        self._listeners = 0
        self._reads: dict[tuple[int, int], asyncio.Future[list[Recorded]]] = {}
        self.closed = False

    def publish(self, item: Recorded) -> None:
        """Show one item to all listeners."""
        if self._forward is not None:
            self._forward(item)
        if not self._listeners:
            self._dropped_seq = item.seq
            return
        dropped = self._ring.append(item)
        if dropped is not None:  # a listener that still needs it reads the journal
            self._dropped_seq = dropped.seq

    def close(self) -> None:
        """End all listeners once they have caught up."""
        self.closed = True
        self._ring.wake()

    async def listen(self, after_seq: int = 0) -> AsyncGenerator[list[Recorded]]:
        """Yield everything after `after_seq` in order, in batches, until the feed is closed."""
        seq, cursor = after_seq, -1
        self._listeners += 1
        try:
            while True:
                if cursor < self._ring.start:
                    if seq < self._dropped_seq:
                        dropped_seq = self._dropped_seq  # it can grow during the read
                        batch = await self._read_shared(seq)
                        batch = [item for item in batch if item.seq <= dropped_seq]
                        seq = batch[-1].seq if batch else dropped_seq
                        if batch:
                            yield batch
                        continue
                    cursor = self._ring.position_after(seq, _seq)
                fresh = self._ring.read(cursor, MAX_BATCH)
                if fresh:
                    cursor += len(fresh)
                    seq = fresh[-1].seq
                    yield fresh
                elif self.closed:
                    return
                else:
                    await self._ring.wait()
        finally:
            self._listeners -= 1
            newest = self._ring.clear() if not self._listeners else None
            if newest is not None:
                self._dropped_seq = newest.seq

    async def _read_shared(self, after_seq: int) -> list[Recorded]:
        """Read what the ring has not; listeners that need the same meanwhile share the read.

        Clients that reconnect have all seen the same. When 1,000 came at once, a read for each took
        250 µs of CPU time for a listener that got 20 texts, all in all; this takes 35 µs.
        """
        key = after_seq, self._dropped_seq
        reading = self._reads.get(key)
        if reading is None:
            reading = asyncio.ensure_future(self._read_journal(after_seq, MAX_BATCH))
            reading.add_done_callback(lambda _: self._reads.pop(key))
            self._reads[key] = reading
        return await asyncio.shield(reading)  # a listener that leaves ends it for nobody else


def _seq(item: Recorded) -> int:
    return item.seq


def _chars(item: Recorded) -> int:
    return len(item.event.text) if isinstance(item.event, Output) else 0
