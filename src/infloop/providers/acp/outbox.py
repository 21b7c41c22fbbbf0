"""The queue of messages to a program, written in order, as fast as the program reads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Work: TypeAlias = Callable[[], bytes]

MAX_MESSAGES, MAX_BYTES = 1_000, 16 << 20


class Outbox:
    """Messages, and functions that read or write files and return a message when it is due."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes | Work, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting that the program cannot be reading."""
        return len(self._waiting) > MAX_MESSAGES or self._bytes > MAX_BYTES

    def put(self, message: bytes) -> None:
        """Append a message."""
        self._put(message, len(message))

    def put_work(self, work: Work, size: int = 0) -> None:
        """Append the message that `work` returns; `size` is the memory it holds until then."""
        self._put(work, size)

    def close(self) -> None:
        """Close the program's input after the waiting messages; more are ignored."""
        self._closed = True
        self._changed.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the messages as they come."""
        while True:
            while self._waiting:
                message, size = self._waiting.popleft()
                self._bytes -= size
                yield message if isinstance(message, bytes) else await _result(message)
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()

    def _put(self, message: bytes | Work, size: int) -> None:
        if not self._closed:
            self._waiting.append((message, size))
            self._bytes += size
            self._changed.set()


async def _result(work: Work) -> bytes:
    return await in_thread(lambda _: work())
