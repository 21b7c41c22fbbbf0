"""What happens in all runs of this process, and around them, for any number of listeners.

One ring holds the newest items; a listener is a cursor into it. Publishing costs the same however
many listen, and a listener that never reads costs nothing. One that falls behind the ring is told
so by a gap in the numbers: unlike a run's own feed, nothing is read from the journal for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from infloop.lowlevel.ring import Ring
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
        self._ring: Ring[Item] = Ring(RING_ITEMS, RING_CHARS, _chars)
        self._watchers: list[Callable[[Said], None]] = []
        self._listeners = 0

    @property
    def last(self) -> int:
        """The number of the newest item; 0 before the first."""
        return self._ring.end

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

    async def listen(self, after: int) -> AsyncGenerator[list[Item]]:
        """Yield what follows number `after`, in batches, without end.

        A first number that does not follow `after` says that something was missed.
        """
        self._listeners += 1
        try:
            while True:
                fresh = self._ring.read(after, READ_AT_ONCE)
                if fresh:
                    after = fresh[-1].number
                    yield fresh
                else:
                    await self._ring.wait()
        finally:
            self._listeners -= 1


def _chars(item: Item) -> int:
    """Return about how much memory an item takes; what a step returned can be long."""
    said = item.said
    if not isinstance(said, Recorded):
        return _FEW
    event = said.event
    return _FEW + len(event.text if isinstance(event, Output) else encode_event(event))
