"""What a live run says, for any number of listeners.

One ring holds the newest part of the run's sequence; a listener is a cursor into it. Publishing
costs the same however many listen, and nothing when nobody does: the ring is then empty. Whoever
comes late, or falls behind the ring, reads on from the journal and comes back; one that never reads
costs nothing and loses nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.model.events import Output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from infloop.model.events import Recorded

    ReadJournal = Callable[[int, int], Awaitable[list[Recorded]]]

RING_ITEMS = 8192
RING_CHARS = 4 << 20
READ_AT_ONCE = 1024


class Feed:
    """The live end of one run's sequence."""

    def __init__(
        self,
        read_journal: ReadJournal,
        last_seq: int = 0,
        also: Callable[[Recorded], None] | None = None,
    ) -> None:
        self._read_journal = read_journal
        self._also = also
        self._ring: list[Recorded] = []
        self._dropped = 0
        self._dropped_seq = last_seq
        self._chars = 0
        self._listening = 0
        self._waiting: list[asyncio.Future[None]] = []
        self.closed = False

    def publish(self, item: Recorded) -> None:
        """Show one item to everybody who listens."""
        if self._also is not None:
            self._also(item)
        if not self._listening:
            self._dropped_seq = item.seq
            return
        self._ring.append(item)
        if isinstance(item.event, Output):
            self._chars += len(item.event.text)
        if len(self._ring) > 2 * RING_ITEMS or self._chars > 2 * RING_CHARS:
            self._trim()
        if self._waiting:
            self._wake()

    def close(self) -> None:
        """Say that nothing more will come."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _trim(self) -> None:
        """Drop the older half; who still needs it finds it in the journal."""
        self._drop(max(1, len(self._ring) // 2))

    def _drop(self, count: int) -> None:
        gone = self._ring[:count]
        del self._ring[:count]
        self._dropped += count
        self._dropped_seq = gone[-1].seq
        self._chars -= sum(len(i.event.text) for i in gone if isinstance(i.event, Output))

    async def listen(self, after_seq: int = 0) -> AsyncGenerator[list[Recorded]]:
        """Yield everything after `after_seq` in order, in batches, until the run has finished."""
        seq, cursor = after_seq, -1
        self._listening += 1
        try:
            while True:
                if cursor < self._dropped:
                    if seq < self._dropped_seq:
                        batch = await self._read_journal(seq, READ_AT_ONCE)
                        batch = [item for item in batch if item.seq <= self._dropped_seq]
                        seq = batch[-1].seq if batch else self._dropped_seq
                        if batch:
                            yield batch
                        continue
                    cursor = self._dropped + self._first_after(seq)
                fresh = self._ring[cursor - self._dropped : cursor - self._dropped + READ_AT_ONCE]
                if fresh:
                    cursor += len(fresh)
                    seq = fresh[-1].seq
                    yield fresh
                elif self.closed:
                    return
                else:
                    await self._more()
        finally:
            self._listening -= 1
            if not self._listening and self._ring:
                self._drop(len(self._ring))

    def _first_after(self, seq: int) -> int:
        low, high = 0, len(self._ring)
        while low < high:
            middle = (low + high) // 2
            if self._ring[middle].seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low

    async def _more(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:  # a listener that went away leaves nothing behind
                self._waiting.remove(future)
