"""Change notification on SQLite: the database's own change counter, polled.

The counter does not say what a commit was about, so all subjects share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.store.interfaces.changes import Changes

if TYPE_CHECKING:
    import sqlite3

_POLL_SECONDS = 0.02  # reading the counter takes microseconds


class SqliteChanges(Changes):
    """Reads the counter on a connection of its own, so that it sees every other connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def version(self, subject: str) -> int:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    async def wait(self, subject: str, version: int, seconds: float) -> None:
        import asyncio  # not above: `infloop runs` waits for nothing, and asyncio takes 40 ms

        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.version(subject) == version and (left := deadline - loop.time()) > 0:  # noqa: ASYNC110  (other processes)
            await asyncio.sleep(min(_POLL_SECONDS, left))

    def close(self) -> None:
        self._connection.close()
