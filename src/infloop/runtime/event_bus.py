"""What happens in all runs and in the queue, for any number of listeners.

Subscribers get what happens in this process. Listeners also get what the relay brings from others.

A ring buffer holds the newest items. A listener is a position in it.

- Publishing costs the same for any number of listeners. A listener that never reads costs nothing.
- A listener that falls behind sees a gap in the numbers. Unlike a run's own feed, the bus reads
  nothing from the journal for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import astuple

from infloop.lowlevel.ring import Ring
from infloop.model.events import Output, Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from infloop.model.values import JsonObject

RING_ITEMS = 8192
RING_CHARS = 4 << 20
MAX_BATCH = 1024
_OVERHEAD = 200

BusMessage: TypeAlias = "Recorded | JsonObject"


class BusItem(msgspec.Struct, eq=False):
    """A message, its number, and its encoded form once a client needed it."""

    number: int
    message: BusMessage
    frame: bytes = b""


class EventBus:
    """The newest messages; their numbers start with 1 and have no gaps.

    Nothing is stored while there are no subscribers and no listeners, as in most processes.
    """

    def __init__(self) -> None:
        self._ring: Ring[BusItem] = Ring(RING_ITEMS, RING_CHARS, _size)
        self._subscribers: list[Callable[[BusMessage], None]] = []
        self._listeners = 0

    @property
    def last(self) -> int:
        """The number of the newest item; 0 before the first."""
        return self._ring.end

    @property
    def is_used(self) -> bool:
        """Whether there are subscribers or listeners."""
        return bool(self._subscribers) or self._listeners > 0

    def subscribe(self, subscriber: Callable[[BusMessage], None]) -> None:
        """Call `subscriber` with every message from now on; it must not block."""
        self._subscribers.append(subscriber)

    def publish(self, message: BusMessage) -> None:
        if not self.is_used:
            return
        for subscriber in self._subscribers:
            subscriber(message)
        self._ring.append(BusItem(self.last + 1, message))

    def relay(self, message: BusMessage) -> None:
        """Tell the listeners what happened in another process."""
        self._ring.append(BusItem(self.last + 1, message))

    async def listen(self, after: int) -> AsyncGenerator[list[BusItem]]:
        """Yield what follows number `after`, in batches, forever.

        A first number other than `after + 1` means that messages were missed.
        """
        self._listeners += 1
        try:
            while True:
                fresh = self._ring.read(after, MAX_BATCH)
                if fresh:
                    after = fresh[-1].number
                    yield fresh
                else:
                    await self._ring.wait()
        finally:
            self._listeners -= 1


def _size(item: BusItem) -> int:
    """Return about how many characters an item holds: a step can return long texts."""
    message = item.message
    if isinstance(message, Recorded):
        if isinstance(message.event, Output):  # nearly all of them
            return _OVERHEAD + len(message.event.text)
        return _OVERHEAD + _characters(astuple(message.event))
    return _OVERHEAD + _characters(message.values())


def _characters(values: Iterable[object]) -> int:
    """Return the length of all texts in values, at any depth."""
    size, pending = 0, [values]
    while pending:
        for value in pending.pop():
            if isinstance(value, str):
                size += len(value)
            elif isinstance(value, dict):
                pending += (value, value.values())
            elif isinstance(value, list | tuple):
                pending.append(value)
    return size
