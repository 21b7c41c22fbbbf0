"""Deletes old runs. PostgreSQL reuses the space by itself (autovacuum)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.store.postgresql.definitions import drop_unused_definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.store.postgresql.connections import Connection

RUNS_PER_TRANSACTION = 20


async def prunable_runs(connection: Connection, workflow_id: str, keep: int) -> list[str]:
    """Return the ids of a workflow's finished runs beyond the newest `keep`."""
    cursor = await connection.execute(
        "SELECT id FROM run WHERE workflow_id = %s AND status NOT IN ('running', 'paused')"
        " ORDER BY started_at DESC, id DESC OFFSET %s",
        (workflow_id, max(keep, 0)),
    )
    return [run_id for (run_id,) in await cursor.fetchall()]


async def delete_runs(connection: Connection, run_ids: Sequence[str]) -> int:
    """Delete finished runs and everything that only they use; return how many were deleted.

    Those that another process is just deleting or indexing are left to it, or to the next time. A
    text or definition that another process starts to use at the same moment is protected by a
    foreign key.
    """
    cursor = await connection.execute(
        "SELECT key, definition FROM run WHERE id = ANY(%s) AND status NOT IN ('running', 'paused')"
        " FOR UPDATE SKIP LOCKED",
        ([*run_ids],),
    )
    rows = await cursor.fetchall()
    if not rows:
        return 0
    keys = [key for key, _ in rows]
    used = await connection.execute(
        "WITH gone AS (DELETE FROM batch WHERE run = ANY(%(keys)s))"
        " DELETE FROM blob_use WHERE run = ANY(%(keys)s) RETURNING hash",
        {"keys": keys},
    )
    hashes = [name for (name,) in await used.fetchall()]
    if hashes:
        await connection.execute(
            "DELETE FROM blob WHERE hash = ANY(%s) AND NOT EXISTS"
            " (SELECT 1 FROM blob_use WHERE blob_use.hash = blob.hash)",
            (hashes,),
        )
    await connection.execute("DELETE FROM run WHERE key = ANY(%s)", (keys,))
    for definition in sorted({definition for _, definition in rows}):
        await drop_unused_definition(connection, definition)
    return len(rows)
