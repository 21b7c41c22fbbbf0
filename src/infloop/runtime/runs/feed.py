"""What a live run says, for any number of listeners.

One ring holds the newest part of the run's sequence; a listener is a cursor into it. Publishing
costs the same however many listen, and nothing when nobody does: the ring is then empty. Whoever
comes late, or falls behind the ring, reads on from the journal and comes back; one that never reads
costs nothing and loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.lowlevel.ring import Ring
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
        self._ring: Ring[Recorded] = Ring(RING_ITEMS, RING_CHARS, _chars)
        self._dropped_seq = last_seq
        self._listening = 0
        self.closed = False

    def publish(self, item: Recorded) -> None:
        """Show one item to everybody who listens."""
        if self._also is not None:
            self._also(item)
        if not self._listening:
            self._dropped_seq = item.seq
            return
        dropped = self._ring.append(item)
        if dropped is not None:  # who still needs it finds it in the journal
            self._dropped_seq = dropped.seq

    def close(self) -> None:
        """Say that nothing more will come."""
        self.closed = True
        self._ring.wake()

    async def listen(self, after_seq: int = 0) -> AsyncGenerator[list[Recorded]]:
        """Yield everything after `after_seq` in order, in batches, until the run has finished."""
        seq, cursor = after_seq, -1
        self._listening += 1
        try:
            while True:
                if cursor < self._ring.start:
                    if seq < self._dropped_seq:
                        batch = await self._read_journal(seq, READ_AT_ONCE)
                        batch = [item for item in batch if item.seq <= self._dropped_seq]
                        seq = batch[-1].seq if batch else self._dropped_seq
                        if batch:
                            yield batch
                        continue
                    cursor = self._ring.position_after(seq, _seq)
                fresh = self._ring.read(cursor, READ_AT_ONCE)
                if fresh:
                    cursor += len(fresh)
                    seq = fresh[-1].seq
                    yield fresh
                elif self.closed:
                    return
                else:
                    await self._ring.wait()
        finally:
            self._listening -= 1
            newest = self._ring.clear() if not self._listening else None
            if newest is not None:
                self._dropped_seq = newest.seq


def _seq(item: Recorded) -> int:
    return item.seq


def _chars(item: Recorded) -> int:
    return len(item.event.text) if isinstance(item.event, Output) else 0
