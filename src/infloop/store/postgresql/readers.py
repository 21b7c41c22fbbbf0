"""A few connections for reading; each serves one reader at a time.

The connections cannot write. A read that loses its connection is repeated.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import psycopg

from infloop.store.postgresql.connections import PATIENCE_SECONDS, close_quietly, closed
from infloop.store.postgresql.errors import is_lost, store_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Concatenate

    from infloop.store.postgresql.connections import Connection, Database

T = TypeVar("T")
P = ParamSpec("P")

_CONNECTIONS = 2


class Readers:
    """Runs functions that read, each on one snapshot of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._closed = False

    async def run(
        self,
        read: Callable[Concatenate[Connection, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call `read` with a connection and these arguments; return its result."""
        if self._closed:
            raise closed(self._database.shown)
        give_up = time.monotonic() + PATIENCE_SECONDS
        async with self._slots:
            while True:
                connection = self._idle.pop() if self._idle else await self._connect()
                try:
                    async with connection.transaction():
                        return await read(connection, *args, **kwargs)
                except psycopg.Error as error:
                    if not is_lost(error, connection) or time.monotonic() > give_up:
                        raise store_error(error, self._database.shown) from error
                    await close_quietly(connection)
                finally:
                    if not connection.closed:
                        self._idle.append(connection)

    async def _connect(self) -> Connection:
        return await self._database.reconnect(read_only=True)

    async def close(self) -> None:
        """Wait for running reads and close the connections."""
        self._closed = True
        for _ in range(_CONNECTIONS):
            await self._slots.acquire()
        for connection in self._idle:
            await close_quietly(connection)
