"""What happens in all runs of this process, and around them, for any number of listeners.

One ring holds the newest items; a listener is a cursor into it. Publishing costs the same however
many listen, and a listener that never reads costs nothing. One that falls behind the ring is told
so by a gap in the numbers: unlike a run's own feed, nothing is read from the journal for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from infloop.model.events import Output, Recorded, encode_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from infloop.model.values import JsonObject

RING_ITEMS = 8192
RING_CHARS = 4 << 20
READ_AT_ONCE = 1024
_FEW = 200

Said: TypeAlias = "Recorded | JsonObject"


@dataclass(slots=True, eq=False)
class Item:
    """Something that happened, its number, and its wire form once somebody needed it."""

    number: int
    said: Said
    frame: bytes = b""


class News:
    """The newest things that happened; numbers begin with 1 and have no holes.

    Nothing is kept as long as nobody watches or listens: in most processes nobody does.
    """

    def __init__(self) -> None:
        self._ring: list[Item] = []
        self._dropped = 0
        self._chars = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._watchers: list[Callable[[Said], None]] = []
        self._listeners = 0

    @property
    def last(self) -> int:
        """The number of the newest item; 0 before the first."""
        return self._dropped + len(self._ring)

    @property
    def watched(self) -> bool:
        """Whether this process has anybody who may want to know."""
        return bool(self._watchers) or self._listeners > 0

    def watch(self, watcher: Callable[[Said], None]) -> None:
        """Have `watcher` called with everything from now on; it must be quick."""
        self._watchers.append(watcher)

    def publish(self, said: Said) -> None:
        """Show something to everybody who listens."""
        if not self.watched:
            return
        for watcher in self._watchers:
            watcher(said)
        self._ring.append(Item(self.last + 1, said))
        self._chars += _chars(said)
        if len(self._ring) > 2 * RING_ITEMS or self._chars > 2 * RING_CHARS:
            half = max(1, len(self._ring) // 2)
            self._chars -= sum(_chars(item.said) for item in self._ring[:half])
            del self._ring[:half]
            self._dropped += half
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def listen(self, after: int) -> AsyncGenerator[list[Item]]:
        """Yield what follows number `after`, in batches, without end.

        A first number that does not follow `after` says that something was missed.
        """
        self._listeners += 1
        try:
            while True:
                start = max(after, self._dropped) - self._dropped
                fresh = self._ring[start : start + READ_AT_ONCE]
                if fresh:
                    after = fresh[-1].number
                    yield fresh
                else:
                    await self._more()
        finally:
            self._listeners -= 1

    async def _more(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:  # a listener that went away leaves nothing behind
                self._waiting.remove(future)


def _chars(said: Said) -> int:
    """Return about how much memory an item takes; what a step returned can be long."""
    if not isinstance(said, Recorded):
        return _FEW
    event = said.event
    return _FEW + len(event.text if isinstance(event, Output) else encode_event(event))
