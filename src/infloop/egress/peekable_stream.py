"""A connection whose received bytes can be examined before they are consumed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_BUFFERED = 64 << 10
_LINGER_S = 1.0
_MAX_DISCARDED = 1 << 20


class PeekableStream(asyncio.Protocol):
    """Buffers received data in bounded memory and lets a coroutine wait for more.

    `on_closed`, if set, is called when the peer closes the connection.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = False
        self.on_closed: Callable[[], object] | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Buffer the data; pause reading if there is much."""
        self.received += data
        if len(self.received) > _MAX_BUFFERED and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> bool:
        """Record that the peer has finished sending; we can still write."""
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        _wake(self._writing)

    def pause_writing(self) -> None:
        self._writing = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        _wake(self._writing)
        self._writing = None

    def _end(self) -> None:
        self.ended = True
        _wake(self._reading)
        if self.on_closed is not None:
            self.on_closed()

    async def wait_for_more(self) -> bool:
        """Wait for more data; return False when no more will come."""
        if self.ended:
            return False
        self.resume()
        before = len(self.received)
        self._reading = asyncio.get_running_loop().create_future()
        try:
            await self._reading
        finally:
            self._reading = None
        return len(self.received) > before

    def resume(self) -> None:
        """Read again after a pause."""
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def take(self, size: int | None = None) -> bytes:
        """Remove and return the buffered data, or its first `size` bytes."""
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    async def wait_until_written(self) -> None:
        """Wait until most of the written data has been sent."""
        if self._writing is not None:
            await self._writing

    async def close_gracefully(self, within_s: float) -> None:
        """Close when the written data has been sent, or at the timeout.

        What the peer still sends is discarded for a short time: closing with unread data would
        reset the connection and lose what was written.
        """
        self.on_closed = None
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                self.transport.set_write_buffer_limits(0)
                await self.wait_until_written()
            async with asyncio.timeout(_LINGER_S):
                await self._discard_rest()
        self.transport.abort()

    async def _discard_rest(self) -> None:
        if not self.transport.is_closing():
            with suppress(OSError):  # it may already be closed
                self.transport.write_eof()
        discarded = len(self.take())
        while discarded < _MAX_DISCARDED and await self.wait_for_more():
            discarded += len(self.take())


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
