"""Limits of one connection.

- The head of a request must arrive within a deadline and a size.
- A response that nobody reads is aborted.
- A connection that sends nothing is closed.

`guards.LimitBody` limits the body.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection, with limits."""

    head_seconds = 15.0
    head_bytes = 64 << 10
    stuck_seconds = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._stuck_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and self._idle():
            self._start_head_timer()
        waiting = self._head_timer is not None
        if waiting:
            self._head_bytes += len(data)
        super().data_received(data)
        if waiting and self._head_timer is not None and self._head_bytes > self.head_bytes:
            self.send_400_response("Request head too large.")

    def on_headers_complete(self) -> None:
        """Start the request, unless its target is a whole URL."""
        self._cancel_head_timer()
        if not self.url.startswith(b"/"):
            raise ValueError("the request target must be a path")  # the parser's caller answers 400
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck_timer = self.loop.call_later(self.stuck_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stuck_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        self._cancel_stuck_timer()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _cancel_head_timer(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_stuck_timer(self) -> None:
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
            self._stuck_timer = None
