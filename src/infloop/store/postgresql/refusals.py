"""Refused firings in the database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.store.interfaces.refusals import (
    LONGEST_MESSAGE,
    MAX_REFUSALS,
    RefusedFiring,
    RefusedFirings,
)

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection
    from infloop.store.postgresql.readers import Readers
    from infloop.store.postgresql.writer import Writer


class PostgresqlRefusals(RefusedFirings):
    """The refused firings of all processes that use the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def note(self, firing: RefusedFiring) -> None:
        await self._writer.submit(partial(_note, firing=firing))

    async def newest(
        self, *, workflow_id: str | None = None, limit: int = 100
    ) -> list[RefusedFiring]:
        return await self._readers.run(_newest, workflow_id, limit)


async def _note(connection: Connection, firing: RefusedFiring) -> None:
    await connection.execute(
        "INSERT INTO refused_firing (trigger_id, name, kind, workflow, reason, message,"
        " correlation_id, at, first_at, count)"
        " VALUES (%(trigger)s, %(name)s, %(kind)s, %(workflow)s, %(reason)s, %(message)s,"
        " %(correlation_id)s, %(at)s, %(at)s, 1)"
        " ON CONFLICT (trigger_id, reason) DO UPDATE SET name = excluded.name,"
        " kind = excluded.kind, workflow = excluded.workflow, message = excluded.message,"
        " correlation_id = excluded.correlation_id, at = excluded.at,"
        " count = refused_firing.count + 1",
        {
            "trigger": firing.trigger,
            "name": firing.name,
            "kind": firing.kind,
            "workflow": firing.workflow_id,
            "reason": firing.reason,
            "message": firing.message[:LONGEST_MESSAGE],
            "correlation_id": firing.correlation_id,
            "at": firing.at,
        },
    )
    await connection.execute(
        "DELETE FROM refused_firing WHERE key IN (SELECT key FROM refused_firing"
        " ORDER BY at DESC, key DESC OFFSET %s)",
        (MAX_REFUSALS,),
    )


async def _newest(
    connection: Connection, workflow_id: str | None, limit: int
) -> list[RefusedFiring]:
    cursor = await connection.execute(
        "SELECT trigger_id, name, kind, workflow, reason, message, correlation_id, at, first_at,"
        " count FROM refused_firing WHERE %(workflow)s::text IS NULL OR workflow = %(workflow)s"
        " ORDER BY at DESC, key DESC LIMIT %(limit)s",
        {"workflow": workflow_id, "limit": limit},
    )
    return [RefusedFiring(*row) for row in await cursor.fetchall()]
