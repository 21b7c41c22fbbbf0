"""The developer's own services, reachable from a child that has a network of its own.

A listener inside the child's network stands for one port of this machine's loopback: what connects
to the one is connected to the other, byte for byte. Nothing but 127.0.0.1 is ever dialled.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Mapping

_CHUNK = 1 << 16
_DIAL_S = 5.0
_MOST_CONNECTIONS = 256
"""Of one child at once: each takes two descriptors of the server, which needs some itself."""


class Relays:
    """Relays of one child; all of them end with it."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, listeners: Mapping[int, socket.socket]) -> None:
        """Relay each listener to the port it stands for."""
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
        if len(self._connections) >= _MOST_CONNECTIONS:
            writer.close()
            return
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Whatever goes wrong with one connection is seen by its two ends.
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            async with _closing(writer), asyncio.TaskGroup() as both:
                async with asyncio.timeout(_DIAL_S):
                    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                async with _closing(far_writer):
                    back = both.create_task(_copy(far_reader, writer))
                    await _copy(reader, far_writer)
                    await back


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
