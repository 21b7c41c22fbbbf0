"""A WebSocket to a program on this machine: text messages, as a client (RFC 6455).

It connects to loopback only. The other side is not trusted: what is malformed or too long ends the
connection.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from infloop.errors import EgressError
from infloop.model.hosts import authority

if TYPE_CHECKING:
    from types import TracebackType

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_HANDSHAKE_S = 10.0
_MAX_HEAD = 1 << 14
_TEXT, _PONG = 1, 10
_LAST, _MASKED = 0x80, 0x80


class WebSocket:
    """One open WebSocket. Used as `async with await WebSocket.connect(...) as websocket`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._max_bytes = max_bytes

    @classmethod
    async def connect(cls, port: int, target: str, *, max_bytes: int, host: str = "") -> Self:
        """Open `ws://127.0.0.1:port/target`, or that on `::1`; EgressError if that fails."""
        address = "::1" if host == "::1" else "127.0.0.1"
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                reader, writer = await asyncio.open_connection(  # noqa: TID251  (its purpose)
                    address, port, limit=_MAX_HEAD
                )
                try:
                    await _shake_hands(reader, writer, authority(address, port), target)
                except BaseException:
                    await _close(writer)
                    raise
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            where = authority(address, port)
            raise EgressError(f"no WebSocket at {where}: {error}", "unreachable") from None
        return cls(reader, writer, max_bytes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await _close(self._writer)

    def send(self, text: str) -> None:
        """Send a text message."""
        self._send(_TEXT, text.encode("utf-8", "replace"))

    async def receive(self) -> str | None:
        """Return the next text message; None when the other side has closed.

        Raises EgressError for what is malformed or too long.
        """
        message = bytearray()
        while True:
            try:
                last, kind, data = await self._frame(self._max_bytes - len(message))
            except (EOFError, ConnectionError):
                return None
            match kind:
                case 0 | 1:  # continuation, text
                    message += data
                    if last:
                        return message.decode("utf-8", "replace")
                case 8:  # close
                    return None
                case 9:  # ping
                    self._send(_PONG, data)
                case 10:  # pong
                    pass
                case _:
                    raise EgressError("a WebSocket frame has an unknown kind", "broken")

    async def _frame(self, room: int) -> tuple[bool, int, bytes]:
        first, second = await self._reader.readexactly(2)
        if second & _MASKED:
            raise EgressError("a WebSocket server has masked a frame", "broken")
        size = second
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
        if size > room:
            raise EgressError("a WebSocket message is too long", "too-large")
        return bool(first & _LAST), first & 0x0F, await self._reader.readexactly(size)

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", _LAST | kind, _MASKED | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", _LAST | kind, _MASKED | 126, size)
        else:
            head = struct.pack("!BBQ", _LAST | kind, _MASKED | 127, size)
        mask = os.urandom(4)
        repeated = (mask * (size // 4 + 1))[:size]
        masked = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
        self._writer.write(head + mask + masked.to_bytes(size, "big"))


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def _shake_hands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, target: str
) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        (
            f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        ).encode()
    )
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(":", 1) for line in lines if ":" in line)
    digest = hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()
    expected = base64.b64encode(digest).decode()
    answered = next(
        (line.partition(":")[2].strip() for line in lines if "-accept:" in line.lower()), ""
    )
    upgraded = fields.get("upgrade", "").strip() == "websocket"
    if not status.startswith("HTTP/1.1 101 ") or not upgraded or answered != expected:
        raise EgressError("the answer to the WebSocket handshake is wrong", "broken")
