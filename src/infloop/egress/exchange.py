"""One HTTP request of a child and its response; then the connection ends.

`protocol` has parsed the head. h11 gets a minimal head of our own and reads the body according to
it, so that what is forwarded has one meaning. h11 also writes the response.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11

from infloop.egress.protocol import MAX_HEAD
from infloop.errors import EgressError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from infloop.egress.client import Response
    from infloop.egress.peekable_stream import PeekableStream
    from infloop.egress.protocol import Head

_NOT_RETURNED = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-connection", "trailer"),
        *("transfer-encoding", "upgrade", "set-cookie", "alt-svc"),
    )
)


class Exchange:
    """The body of a request, piece by piece, and its response."""

    def __init__(
        self, stream: PeekableStream, head: Head, idle_s: float, refuse: Callable[[int, int], str]
    ) -> None:
        """Continue after the head; `refuse(size, sent_before)` can stop the upload."""
        self.head = head
        self.sent = 0
        self.received = 0
        self.responded = False
        self._stream = stream
        self._idle_s = idle_s
        self._refuse = refuse
        self._buffered: bytes | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._http.receive_data(_minimal_head(head))
        self._http.next_event()

    @property
    def length(self) -> dict[str, str]:
        """The content-length field, if there is one."""
        if self._buffered is not None:
            return {"content-length": str(len(self._buffered))}
        length = self.head.fields.get("content-length")
        return {} if length is None else {"content-length": length}

    def content(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body for the client: None, an empty one, or an iterator."""
        if self._buffered is not None:
            return self._send_buffered(self._buffered)
        if self.head.length == 0:
            return b"" if self.length else None
        return self._body()

    async def read_body(self) -> bytes | None:
        """Read the whole body before it is sent; None if there is none."""
        if self.head.length == 0:
            return None
        body = b"".join([data async for data in self._body()])
        self.sent = 0
        return body

    def replace_body(self, body: bytes) -> None:
        """Send this body instead of the one that was read."""
        self._buffered = body

    async def _send_buffered(self, body: bytes) -> AsyncGenerator[bytes]:
        self.sent = len(body)  # counted when it begins: an error may come at any moment
        yield body

    async def _body(self) -> AsyncGenerator[bytes]:
        """Yield the request's body; raise EgressError when it is too large, broken or too slow."""
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            match await self._next():
                case h11.Data(data=data):
                    if reason := self._refuse(len(data), self.sent):
                        raise EgressError(reason, "too-large")
                    self.sent += len(data)
                    yield bytes(data)
                case h11.EndOfMessage():
                    return

    async def _next(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(self._idle_s):
                    if not self._stream.received and not await self._stream.wait_for_more():
                        raise EgressError(
                            "the request ended before its body was complete", "broken"
                        )
                self._http.receive_data(self._stream.take())
        except h11.RemoteProtocolError as error:
            raise EgressError(f"the request's body cannot be read: {error}", "broken") from None
        except TimeoutError:
            raise EgressError("the request's body was not received in time", "timeout") from None
        return event

    async def respond(self, response: Response, fields: Mapping[str, str]) -> None:
        """Return a response to the child as it is received, with these fields of it."""
        returned_fields = [
            (name, text) for name, text in fields.items() if name not in _NOT_RETURNED
        ]
        returned_fields.append(("connection", "close"))
        self.responded = True
        try:
            self._write(h11.Response(status_code=response.status, headers=returned_fields))
            async for chunk in response.chunks:
                self.received += len(chunk)
                self._write(h11.Data(data=chunk))
                async with asyncio.timeout(self._idle_s):
                    await self._stream.wait_until_written()
            self._write(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise EgressError(
                f"the response cannot be returned to the child: {error}", "broken"
            ) from None
        except TimeoutError:
            raise EgressError("the child did not read the response in time", "timeout") from None

    def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._stream.transport.write(data)


def _minimal_head(head: Head) -> bytes:
    """Return a head with only what h11 needs, and nothing that the child wrote."""
    lines = [f"{head.method} / HTTP/1.{head.version}", "host: child"]
    if head.length is None:
        lines.append("transfer-encoding: chunked")
    elif head.length:
        lines.append(f"content-length: {head.length}")
    if "expect" in head.fields:
        lines.append("expect: 100-continue")
    return "\r\n".join((*lines, "", "")).encode()
