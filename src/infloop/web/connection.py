"""The bounds of one connection: what a slow or endless client cannot do.

A request's head arrives within a deadline and a size; a response that nobody reads is given up. The
body's own bounds are a guard's (`guards.Bounded`). A connection that sends nothing is closed, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection, within bounds."""

    head_seconds = 15.0
    head_bytes = 64 << 10
    stuck_seconds = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._stuck_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, not for ever."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head has become longer than any honest one."""
        if self._head_timer is None and self._idle():
            self._await_head()
        waiting = self._head_timer is not None
        if waiting:
            self._head_bytes += len(data)
        super().data_received(data)
        if waiting and self._head_timer is not None and self._head_bytes > self.head_bytes:
            self.send_400_response("Request head too large.")

    def on_headers_complete(self) -> None:
        """Let the request begin, unless it names a server beside the one in its Host header."""
        self._head_came()
        if not self.url.startswith(b"/"):
            raise ValueError("a request names its path alone")  # the parser's caller answers 400
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Give the reader a while."""
        super().pause_writing()
        self._stuck_timer = self.loop.call_later(self.stuck_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        self._moves_again()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and everything that waits for it."""
        self._head_came()
        self._moves_again()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _head_came(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _moves_again(self) -> None:
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
            self._stuck_timer = None
