"""What is to be written to a program, in order, as fast as it reads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Work: TypeAlias = Callable[[], bytes]

MOST_MESSAGES, MOST_BYTES = 1_000, 16 << 20


class Outbox:
    """Messages, and work with files that makes one, done when its turn comes."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes | Work, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._news = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that the program cannot be reading."""
        return len(self._waiting) > MOST_MESSAGES or self._bytes > MOST_BYTES

    def put(self, message: bytes) -> None:
        """Write a message after the others."""
        self._put(message, len(message))

    def put_work(self, work: Work, size: int = 0) -> None:
        """Write what `work` returns, after the others; `size` is what it holds on to meanwhile."""
        self._put(work, size)

    def close(self) -> None:
        """End the program's input after what is waiting; more is not taken."""
        self._closed = True
        self._news.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the messages as they come."""
        while True:
            while self._waiting:
                message, size = self._waiting.popleft()
                self._bytes -= size
                yield message if isinstance(message, bytes) else await _done(message)
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()

    def _put(self, message: bytes | Work, size: int) -> None:
        if not self._closed:
            self._waiting.append((message, size))
            self._bytes += size
            self._news.set()


async def _done(work: Work) -> bytes:
    return await in_thread(lambda _: work())
