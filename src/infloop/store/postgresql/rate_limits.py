"""Rate limits in the database, by its clock. A name's row is locked while an event is counted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.store.encoding.rates import EMPTY, count_event
from infloop.store.interfaces.rate_limits import FORGOTTEN_MS, RateLimits

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection
    from infloop.store.postgresql.writer import Writer

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

# The clock is read when the row is locked.
_LOCK = (
    f"INSERT INTO rate (name, times, last) VALUES (%s, '{EMPTY}', {_NOW})"  # noqa: S608  (constants)
    f" ON CONFLICT (name) DO UPDATE SET last = {_NOW} RETURNING times, {_NOW}"
).encode()


class PostgresqlRateLimits(RateLimits):
    """What all processes that use the same database count."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, name: str, per_minute: int, now_ms: int) -> int:
        return await self._writer.submit(partial(_take, name=name, per_minute=per_minute))


async def _take(connection: Connection, name: str, per_minute: int) -> int:
    row = await (await connection.execute(_LOCK, (name,))).fetchone()
    assert row is not None
    stored, now_ms = row
    wait, times = count_event(stored, per_minute, now_ms)
    await connection.execute("UPDATE rate SET times = %s WHERE name = %s", (times, name))
    if stored == EMPTY:  # a new name makes room
        await connection.execute(
            "DELETE FROM rate WHERE name IN"
            " (SELECT name FROM rate WHERE last < %s FOR UPDATE SKIP LOCKED)",
            (now_ms - FORGOTTEN_MS,),
        )
    return wait
