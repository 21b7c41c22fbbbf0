"""Rate limits in the database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.store.encoding.rates import EMPTY, count_event
from infloop.store.encoding.values import replace_surrogates
from infloop.store.interfaces.rate_limits import FORGOTTEN_MS, RateLimits

if TYPE_CHECKING:
    import sqlite3

    from infloop.store.sqlite.access import Writer


class SqliteRateLimits(RateLimits):
    """What all processes of this machine that open the same database count."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, name: str, per_minute: int, now_ms: int) -> int:
        name = replace_surrogates(name)
        work = partial(_take, name=name, per_minute=per_minute, now_ms=now_ms)
        return await self._writer.submit(work, patient=True)


def _take(connection: sqlite3.Connection, name: str, per_minute: int, now_ms: int) -> int:
    row = connection.execute("SELECT times FROM rate WHERE name = ?", (name,)).fetchone()
    wait, times = count_event(row[0] if row else EMPTY, per_minute, now_ms)
    connection.execute("INSERT OR REPLACE INTO rate VALUES (?, ?, ?)", (name, times, now_ms))
    if row is None:  # a new name makes room
        connection.execute("DELETE FROM rate WHERE last < ?", (now_ms - FORGOTTEN_MS,))
    return wait
