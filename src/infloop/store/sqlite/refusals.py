"""Refused firings in the database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.store.encoding.values import replace_surrogates
from infloop.store.interfaces.refusals import (
    LONGEST_MESSAGE,
    MAX_REFUSALS,
    RefusedFiring,
    RefusedFirings,
)

if TYPE_CHECKING:
    import sqlite3

    from infloop.store.sqlite.access import Readers, Writer


class SqliteRefusals(RefusedFirings):
    """The refused firings of all processes of this machine that open the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def note(self, firing: RefusedFiring) -> None:
        await self._writer.submit(partial(_note, firing=firing), patient=True)

    async def newest(
        self, *, workflow_id: str | None = None, limit: int = 100
    ) -> list[RefusedFiring]:
        return await self._readers.run(_newest, workflow_id, limit)


def _note(connection: sqlite3.Connection, firing: RefusedFiring) -> None:
    connection.execute(
        "INSERT INTO refused_firing (trigger_id, name, kind, workflow, reason, message,"
        " correlation_id, at, first_at, count) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, 1)"
        " ON CONFLICT (trigger_id, reason) DO UPDATE SET name = ?2, kind = ?3, workflow = ?4,"
        " message = ?6, correlation_id = ?7, at = ?8, count = count + 1",
        (
            firing.trigger,
            replace_surrogates(firing.name),
            firing.kind,
            firing.workflow_id,
            firing.reason,
            replace_surrogates(firing.message[:LONGEST_MESSAGE]),
            firing.correlation_id,
            firing.at,
        ),
    )
    connection.execute(
        "DELETE FROM refused_firing WHERE key IN (SELECT key FROM refused_firing"
        " ORDER BY at DESC, key DESC LIMIT -1 OFFSET ?)",
        (MAX_REFUSALS,),
    )


def _newest(
    connection: sqlite3.Connection, workflow_id: str | None, limit: int
) -> list[RefusedFiring]:
    rows = connection.execute(
        "SELECT trigger_id, name, kind, workflow, reason, message, correlation_id, at, first_at,"
        " count FROM refused_firing WHERE ?1 IS NULL OR workflow = ?1"
        " ORDER BY at DESC, key DESC LIMIT ?2",
        (workflow_id, limit),
    )
    return [RefusedFiring(*row) for row in rows]
