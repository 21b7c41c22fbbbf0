"""Limits of one connection.

- The head of a request must arrive within a deadline and a size.
- A chunked body may have little beside its data: extensions and trailers are bounded.
- A response that nobody reads is aborted.
- A connection that sends nothing is closed.

`guards.LimitBody` limits the body, `connections` the number of connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from infloop.web.connections import Connections, Sender

# The longest size line of a chunk with its line ends: what a chunk needs beside its data.
_CHUNK_BYTES = 32
_PIECE_BYTES = 16 << 10

_TOO_MANY = b"""HTTP/1.1 503 Service Unavailable\r
content-type: application/json\r
content-length: %d\r
retry-after: 5\r
connection: close\r
\r
%s"""
_TOO_MANY_BODY = (
    b'{"error":"overloaded","message":"too many connections from where you are","correlationId":""}'
)


class _HeadWithBody:
    """What a response is written to: its head is sent together with the first part of its body.

    Each write is a system call that wakes the client. One of them takes a tenth of the time in
    which Python works on a webhook's run (by samples of a profile).
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._is_first = True
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._is_first:
            self._is_first, self._head = False, data
            self._loop.call_soon(self._send_head)  # if the body takes longer
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._send_head()
        self._transport.close()

    def _send_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection, with limits."""

    head_seconds = 15.0
    head_bytes = 64 << 10
    framing_bytes = 8 << 10
    stuck_seconds = 60.0

    def __init__(self, *args: Any, all_connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all = all_connections
        self.sender: Sender
        self._head_timer: asyncio.TimerHandle | None = None
        self._stuck_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._framing_bytes = 0
        self._in_body = False

    @property
    def waiting(self) -> bool:
        """Whether the client has to send something first: a request, or the rest of one."""
        return self._idle() or (self.cycle.more_body and not self.cycle.response_started)

    def drop(self) -> None:
        """Close at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        own = (self.server[0], self.server[1] or 0) if self.server else None
        self.sender = self._all.sender(self.client, own)
        if self._all.admit(self):
            self._start_head_timer()
        else:
            transport.write(_TOO_MANY % (len(_TOO_MANY_BODY), _TOO_MANY_BODY))
            transport.close()

    def data_received(self, data: bytes) -> None:
        # In pieces, because what the parser makes of one is known only after it.
        for begin in range(0, len(data), _PIECE_BYTES):
            self._piece_received(data[begin : begin + _PIECE_BYTES])
            if self.transport.is_closing():
                return

    def _piece_received(self, data: bytes) -> None:
        if self._head_timer is None and self._idle():
            self._start_head_timer()
        waiting = self._head_timer is not None
        if waiting:
            self._head_bytes += len(data)
        began_before = self._in_body
        super().data_received(data)
        self._framing_bytes = self._framing_bytes + len(data) if began_before else 0
        if self.transport.is_closing():
            return
        if waiting and self._head_timer is not None and self._head_bytes > self.head_bytes:
            self.send_400_response("Request head too large.")
        elif self._in_body and self._framing_bytes > self.framing_bytes:
            self.send_400_response("Too much beside the data of a chunked body.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["peer_user"] = self.sender.user

    def on_headers_complete(self) -> None:
        """Start the request, unless its target is a whole URL."""
        self._cancel_head_timer()
        if not self.url.startswith(b"/"):
            raise ValueError("the request target must be a path")  # the parser's caller answers 400
        super().on_headers_complete()
        self.cycle.transport = _HeadWithBody(self.transport, self.loop)  # type: ignore[assignment]
        self._in_body, self._framing_bytes = True, 0

    def on_chunk_header(self) -> None:
        self._framing_bytes -= _CHUNK_BYTES

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self.scope["state"]["has_arrived"] = True  # `LimitBody` needs no timer
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck_timer = self.loop.call_later(self.stuck_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stuck_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        self._cancel_stuck_timer()
        self._all.release(self)
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
