"""Forwards local services into the network of a child that has a network of its own.

A listener inside the child's network stands for one port of this machine's loopback. A connection
to the one is forwarded to the other, byte for byte. No address but 127.0.0.1 is connected to, and
no port of infloop's own servers.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from infloop.lowlevel.own_ports import is_own_port
from infloop.sandbox.kernel.connect_policy import OWN_PORT

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Mapping

    from infloop.sandbox.access import OnRefused

_LOOPBACK = "127.0.0.1"

_CHUNK = 1 << 16
_CONNECT_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 256
"""For one child at one time. Each takes two descriptors of the server."""


class ServiceRelays:
    """The relays of one child; all of them end with it."""

    def __init__(self, on_refused: OnRefused | None = None, *, users: tuple[int, ...] = ()) -> None:
        """Refuse ports that infloop announces as root, as our user or as one of the `users`."""
        self._on_refused = on_refused
        self._users = users
        self._refused: set[int] = set()
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, listeners: Mapping[int, socket.socket]) -> None:
        """Forward each listener to its port on this machine."""
        for port, listener in listeners.items():
            serve = partial(self._serve, port)
            self._servers.append(await asyncio.start_server(serve, sock=listener))

    async def close(self) -> None:
        """End every connection."""
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if is_own_port(IPv4Address(_LOOPBACK), port, users=self._users):
            self._report(port)
            writer.close()
            return
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Both ends of a connection notice its errors themselves.
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            async with _closing(writer), asyncio.TaskGroup() as both:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    far_reader, far_writer = await asyncio.open_connection(_LOOPBACK, port)
                async with _closing(far_writer):
                    back = both.create_task(_copy(far_reader, writer))
                    await _copy(reader, far_writer)
                    await back

    def _report(self, port: int) -> None:
        if self._on_refused and port not in self._refused:
            self._refused.add(port)
            self._on_refused(_LOOPBACK, port, OWN_PORT)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
