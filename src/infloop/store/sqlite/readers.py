"""A pool of connections for reading, each used by one thread at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from infloop.errors import StoreError
from infloop.store.sqlite.database import open_for_reading
from infloop.store.sqlite.errors import store_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Concatenate

T = TypeVar("T")
P = ParamSpec("P")

_THREADS = 2


class ReaderThreads:
    """Runs functions that read in threads, each on one snapshot of the database."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._connections = [open_for_reading(path) for _ in range(_THREADS)]
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        for connection in self._connections:
            self._idle.put(connection)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sqlite-reader")
        self._closed = False

    async def run(
        self,
        read: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call `read` with a connection and these arguments; return its result."""
        if self._closed:
            raise StoreError(f"the database {self._path!r} is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: self._on_snapshot(lambda c: read(c, *args, **kwargs))
        )

    async def close(self) -> None:
        """Wait for running reads and close the connections."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close()

    def _on_snapshot(self, read: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._idle.get()
        try:
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error
        finally:
            self._idle.put(connection)
