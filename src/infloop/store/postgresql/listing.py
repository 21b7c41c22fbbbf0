"""Lists runs, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from infloop.errors import NotFound
from infloop.store.encoding.records import run_row

if TYPE_CHECKING:
    from infloop.store.interfaces.run_log import Cursor, RunRow, StoredStatus
    from infloop.store.postgresql.connections import Connection

RUN_COLUMNS: LiteralString = (
    "run.id, workflow_id, workflow_name, definition, run.correlation_id, cause, owner, epoch,"
    " status, error, failed_step, started_at, finished_at, last_seq, events, steps, output_bytes"
)

_WHERE: LiteralString = (
    "(%(workflow)s::text IS NULL OR workflow_id = %(workflow)s)"
    " AND (%(status)s::text IS NULL OR status = %(status)s)"
)


async def read_run(connection: Connection, run_id: str) -> tuple[int, RunRow]:
    """Return a run's key and row, or raise `NotFound`."""
    cursor = await connection.execute(
        f"SELECT key, {RUN_COLUMNS} FROM run WHERE id = %s",  # noqa: S608  (constants)
        (run_id,),
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r}; `infloop runs` lists them")
    return row[0], run_row(row[1:])


async def list_runs(
    connection: Connection,
    workflow_id: str | None,
    status: StoredStatus | None,
    limit: int,
    before: Cursor | None,
) -> list[RunRow]:
    """Return up to `limit` runs that are older than `before`."""
    cursor = await connection.execute(
        f"SELECT {RUN_COLUMNS} FROM run WHERE {_WHERE}"  # noqa: S608  (constants)
        " AND (%(time)s::bigint IS NULL OR (started_at, id) < (%(time)s, %(id)s))"
        " ORDER BY started_at DESC, id DESC LIMIT %(limit)s",
        {
            "workflow": workflow_id,
            "status": status,
            "time": before.started_at if before else None,
            "id": before.run_id if before else None,
            "limit": limit,
        },
        prepare=False,  # planned for these values: which index serves depends on them
    )
    return [run_row(row) for row in await cursor.fetchall()]


async def runs_with_prefix(connection: Connection, prefix: str, limit: int) -> list[RunRow]:
    """Return up to `limit` runs whose id starts with `prefix`."""
    cursor = await connection.execute(
        f"SELECT {RUN_COLUMNS} FROM run"  # noqa: S608  (constants)
        " WHERE id >= %(prefix)s AND starts_with(id, %(prefix)s) ORDER BY id LIMIT %(limit)s",
        {"prefix": prefix, "limit": limit},
    )
    return [run_row(row) for row in await cursor.fetchall()]


async def count_runs(
    connection: Connection, workflow_id: str | None, status: StoredStatus | None
) -> int:
    """Return how many runs there are."""
    cursor = await connection.execute(
        f"SELECT count(*) FROM run WHERE {_WHERE}",  # noqa: S608  (constants)
        {"workflow": workflow_id, "status": status},
        prepare=False,
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
