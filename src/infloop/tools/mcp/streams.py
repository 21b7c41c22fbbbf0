"""How a session reads and writes messages: the streams that the protocol's library expects.

A server is not trusted to keep quiet. Only answers to our requests and some pings reach the
session. Notifications are dropped, but a changed list of tools is noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

if TYPE_CHECKING:
    from types import TracebackType

MAX_MESSAGE_BYTES = 4 << 20
"""The longest message of a server."""
MAX_PINGS = 1_000
_MAX_WAITING = 16

Streams: TypeAlias = "tuple[Inbox, Outbox]"
OpenStreams: TypeAlias = Callable[[], AbstractAsyncContextManager[Streams]]
"""Reaches a server; leaving the context ends everything."""


class ServerFailed(Exception):
    """A server is gone or broke the rules; the text says what happened."""


class Inbox:
    """Messages of the server, read by the session."""

    def __init__(self) -> None:
        self.tools_changed = False
        self.failure = ""
        self._queue: asyncio.Queue[SessionMessage | None] = asyncio.Queue(_MAX_WAITING)
        self._pings = 0
        self._ended = False

    async def put(self, data: bytes | str) -> bool:
        """Take a message as it came, and return whether it is an answer.

        What is not a message for the session is dropped.
        """
        try:
            message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
        except (ValidationError, RecursionError):
            return False
        if isinstance(message, types.JSONRPCNotification):
            self.tools_changed |= message.method == "notifications/tools/list_changed"
            return False
        if isinstance(message, types.JSONRPCRequest):
            self._pings += 1
            if message.method != "ping" or self._pings > MAX_PINGS:
                return False
        await self._queue.put(SessionMessage(message))
        return not isinstance(message, types.JSONRPCRequest)

    async def put_error(self, request: types.RequestId, reason: str) -> None:
        """Answer a request of the session with an error of our own."""
        error = types.ErrorData(code=types.INTERNAL_ERROR, message=reason)
        await self._queue.put(
            SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=error))
        )

    async def end(self, failure: str) -> None:
        """Tell the session that the server is gone."""
        self.failure = self.failure or failure
        await self._queue.put(None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        item = None if self._ended else await self._queue.get()
        if item is None:
            self._ended = True
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """Drop what comes from now on."""
        self._ended = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self.receive()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Outbox:
    """Messages of the session; each is handed to `send`, which sends it to the server."""

    def __init__(self, send: Callable[[SessionMessage], Coroutine[Any, Any, None]]) -> None:
        self._send = send

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        await self._send(item)

    async def aclose(self) -> None:
        """Do nothing: whoever opened the streams closes them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


def encoded(message: types.JSONRPCMessage) -> bytes:
    """Return a message as JSON in one line."""
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
