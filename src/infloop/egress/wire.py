"""One connection while a coroutine reads it: what has come is looked at before it is taken."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_WAITING = 64 << 10
_LINGER_S = 1.0
_MOST_THROWN_AWAY = 1 << 20


class Wire(asyncio.Protocol):
    """Gathers what comes, in bounded memory, and says when there is more.

    `on_gone`, once set, is called when the other side hangs up.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = False
        self.on_gone: Callable[[], object] | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep what came; let the other side wait if it is a lot."""
        self.received += data
        if len(self.received) > _MOST_WAITING and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> bool:
        """Note that nothing more will come; we may still answer."""
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is gone."""
        self._end()
        _wake(self._writing)

    def pause_writing(self) -> None:
        """Let `drained` wait."""
        self._writing = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let `drained` go on."""
        _wake(self._writing)
        self._writing = None

    def _end(self) -> None:
        self.ended = True
        _wake(self._reading)
        if self.on_gone is not None:
            self.on_gone()

    async def more(self) -> bool:
        """Wait until more has come than there was; False when nothing more will."""
        if self.ended:
            return False
        self.go_on()
        before = len(self.received)
        self._reading = asyncio.get_running_loop().create_future()
        try:
            await self._reading
        finally:
            self._reading = None
        return len(self.received) > before

    def go_on(self) -> None:
        """Read again after a lot had come."""
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def take(self, size: int | None = None) -> bytes:
        """Return what has come, or its first `size` bytes, and forget it."""
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    async def drained(self) -> None:
        """Wait until the other side has taken most of what was written."""
        if self._writing is not None:
            await self._writing

    async def hang_up(self, within_s: float) -> None:
        """Close when the other side has taken our last words, or does not in time.

        What it still sends is thrown away for a moment: closing with something unread would take
        the last words back.
        """
        self.on_gone = None
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                self.transport.set_write_buffer_limits(0)
                await self.drained()
            async with asyncio.timeout(_LINGER_S):
                await self._let_it_finish()
        self.transport.abort()

    async def _let_it_finish(self) -> None:
        if not self.transport.is_closing():
            with suppress(OSError):  # it may have gone, and we not been told yet
                self.transport.write_eof()
        thrown = len(self.take())
        while thrown < _MOST_THROWN_AWAY and await self.more():
            thrown += len(self.take())


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
