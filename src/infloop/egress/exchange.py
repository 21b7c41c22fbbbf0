"""One HTTP request of a child and the answer to it; then the connection ends.

The head was read by `protocol`. h11 gets a head of our own making and reads the body by it, so that
what is passed on has one meaning; and it writes the answer.
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
    from infloop.egress.protocol import Head
    from infloop.egress.wire import Wire

_NOT_PASSED_BACK = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-connection", "trailer"),
        *("transfer-encoding", "upgrade", "set-cookie", "alt-svc"),
    )
)


class Exchange:
    """The body of a request, piece by piece, and its answer."""

    def __init__(
        self, wire: Wire, head: Head, idle_s: float, refuse: Callable[[int, int], str]
    ) -> None:
        """Go on behind the head; `refuse` is asked about bytes to send and those sent before."""
        self.head = head
        self.sent = 0
        self.received = 0
        self.answered = False
        self._wire = wire
        self._idle_s = idle_s
        self._refuse = refuse
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._http.receive_data(_known_head(head))
        self._http.next_event()

    @property
    def length(self) -> dict[str, str]:
        """The field that says how large the body is, if that is known."""
        length = self.head.fields.get("content-length")
        return {} if length is None else {"content-length": length}

    def content(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body as the client takes it: none, an empty one, or what comes."""
        if self.head.length == 0:
            return b"" if self.length else None
        return self._body()

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
                    if not self._wire.received and not await self._wire.more():
                        raise EgressError("the request broke off", "broken")
                self._http.receive_data(self._wire.take())
        except h11.RemoteProtocolError as error:
            raise EgressError(f"the request's body cannot be read: {error}", "broken") from None
        except TimeoutError:
            raise EgressError("the request's body did not come in time", "timeout") from None
        return event

    async def answer(self, response: Response, fields: Mapping[str, str]) -> None:
        """Pass an answer back as it comes, with these fields of it."""
        kept = [(name, text) for name, text in fields.items() if name not in _NOT_PASSED_BACK]
        kept.append(("connection", "close"))
        self.answered = True
        try:
            self._write(h11.Response(status_code=response.status, headers=kept))
            async for chunk in response.chunks:
                self.received += len(chunk)
                self._write(h11.Data(data=chunk))
                async with asyncio.timeout(self._idle_s):
                    await self._wire.drained()
            self._write(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise EgressError(f"the answer cannot be passed back: {error}", "broken") from None
        except TimeoutError:
            raise EgressError("the child did not take the answer in time", "timeout") from None

    def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._wire.transport.write(data)


def _known_head(head: Head) -> bytes:
    """Return a head that says as much as h11 must know, and nothing the child wrote."""
    lines = [f"{head.method} / HTTP/1.{head.version}", "host: child"]
    if head.length is None:
        lines.append("transfer-encoding: chunked")
    elif head.length:
        lines.append(f"content-length: {head.length}")
    if "expect" in head.fields:
        lines.append("expect: 100-continue")
    return "\r\n".join((*lines, "", "")).encode()
