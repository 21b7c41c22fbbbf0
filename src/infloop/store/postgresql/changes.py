"""Change notification on PostgreSQL: LISTEN and NOTIFY on a connection of its own.

`version` is a counter of this process. It grows with each commit of its own, with each notification
of another process, and when the connection was lost: something may have been missed then.

A commit is announced by a separate transaction right after it. PostgreSQL lets only one transaction
that notifies commit at a time, and waits for the disk meanwhile; the announcement has nothing to
wait for. Commits while one is under way share the next one. A process that dies between a commit
and its announcement leaves it unannounced: who waits looks again when the time of the wait is up.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from infloop.errors import StoreError
from infloop.store.interfaces.changes import Changes
from infloop.store.postgresql.connections import close_quietly
from infloop.store.postgresql.errors import is_lost

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection, Database

_CHANNEL = "infloop_changes"
_PAUSE_SECONDS = 1.0


class PostgresqlChanges(Changes):
    """Listens for the commits of other processes and announces those of this one."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self._connection: Connection | None = connection
        self._version = 1
        self._unannounced = False
        self._heard = False
        self._readable = asyncio.Event()
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._serve(), name="postgresql-changes")

    def version(self) -> int:
        return self._version

    async def wait(self, version: int, seconds: float) -> None:
        if self._version != version:
            return
        changed: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(changed)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed
        finally:
            self._waiting.discard(changed)

    def committed(self) -> None:
        """Note a commit of this process; others are told soon."""
        self._bump()
        self._unannounced = True
        self._readable.set()

    async def close(self) -> None:
        """Announce what is unannounced, then stop listening."""
        if self._unannounced and self._connection is not None:
            self._readable.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while self._unannounced:  # noqa: ASYNC110  (the task sets it)
                        await asyncio.sleep(0.001)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await close_quietly(self._connection)

    def _bump(self) -> None:
        self._version += 1
        waiting, self._waiting = self._waiting, set()
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def _serve(self) -> None:
        while True:
            try:
                await self._serve_connection()
            except StoreError:  # unreachable for long: whoever writes or reads says so
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _serve_connection(self) -> None:
        if self._connection is None:
            self._connection = await self._database.reconnect(synced=False)
            self._bump()
        connection = self._connection
        try:
            connection.add_notify_handler(self._notified)
            await connection.execute(f"LISTEN {_CHANNEL}")
            while True:
                await self._exchange(connection)
        except psycopg.Error as error:
            if not is_lost(error, connection):
                raise
        self._connection = None
        await close_quietly(connection)

    def _notified(self, notified: psycopg.Notify) -> None:
        """Note what arrived while psycopg was executing something."""
        assert self._connection is not None
        self._heard = self._heard or notified.pid != self._connection.pgconn.backend_pid

    async def _exchange(self, connection: Connection) -> None:
        """Announce and receive what there is, then wait for more."""
        if self._unannounced:
            self._unannounced = False
            try:
                await connection.execute(f"NOTIFY {_CHANNEL}")
            except psycopg.Error:
                self._unannounced = True
                raise
        connection.pgconn.consume_input()
        while (notified := connection.pgconn.notifies()) is not None:
            self._heard = self._heard or notified.be_pid != connection.pgconn.backend_pid
        if self._heard:
            self._heard = False
            self._bump()
        if not self._unannounced:
            # psycopg watches the socket itself while it executes, so this begins anew each time.
            self._loop.add_reader(connection.fileno(), self._readable.set)
            try:
                await self._readable.wait()
            finally:
                self._loop.remove_reader(connection.fileno())
            self._readable.clear()
