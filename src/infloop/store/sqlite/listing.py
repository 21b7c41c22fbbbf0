"""Lists runs, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.store.encoding.records import run_row

if TYPE_CHECKING:
    import sqlite3

    from infloop.store.interfaces.run_log import Cursor, RunRow, StoredStatus


def _current(total: str) -> str:
    """Return the SQL for a total of a run; while it is running, that is in its last batch."""
    last_batch = (
        f"(SELECT {total} FROM stretch"  # noqa: S608  (constants)
        " WHERE stretch.id BETWEEN run.key << 32 AND run.key << 32 | 0xFFFFFFFF"
        " ORDER BY stretch.id DESC LIMIT 1)"
    )
    return f"CASE status WHEN 'running' THEN max(run.{total}, {last_batch}) ELSE run.{total} END"


LAST_SEQ = _current("last_seq")

RUN_COLUMNS = (
    "run.id, workflow_id, workflow_name, definition, run.correlation_id, cause, owner, epoch,"
    " status, error, failed_step, started_at, finished_at,"
    f" {LAST_SEQ}, {_current('events')}, {_current('steps')}, {_current('output_bytes')}"
)


def read_run(connection: sqlite3.Connection, run_id: str) -> tuple[int, RunRow]:
    """Return a run's key and row, or raise `NotFound`."""
    row = connection.execute(
        f"SELECT key, {RUN_COLUMNS} FROM run WHERE id = ?",  # noqa: S608  (a constant)
        (run_id,),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r}; `infloop runs` lists them")
    return row[0], run_row(row[1:])


def list_runs(
    connection: sqlite3.Connection,
    workflow_id: str | None,
    status: StoredStatus | None,
    limit: int,
    before: Cursor | None,
) -> list[RunRow]:
    """Return up to `limit` runs that are older than `before`."""
    where, values = _conditions(workflow_id, status)
    if before is not None:
        where += " AND (started_at, id) < (?, ?)"
        values += before
    rows = connection.execute(
        f"SELECT {RUN_COLUMNS} FROM run WHERE {where}"  # noqa: S608  (constants)
        " ORDER BY started_at DESC, id DESC LIMIT ?",
        (*values, limit),
    )
    return [run_row(row) for row in rows]


def runs_with_prefix(connection: sqlite3.Connection, prefix: str, limit: int) -> list[RunRow]:
    """Return up to `limit` runs whose id starts with `prefix`."""
    rows = connection.execute(
        f"SELECT {RUN_COLUMNS} FROM run WHERE id >= ? AND substr(id, 1, ?) = ?"  # noqa: S608  (a constant)
        " ORDER BY id LIMIT ?",
        (prefix, len(prefix), prefix, limit),
    )
    return [run_row(row) for row in rows]


def count_runs(
    connection: sqlite3.Connection, workflow_id: str | None, status: StoredStatus | None
) -> int:
    """Return how many runs there are."""
    where, values = _conditions(workflow_id, status)
    count: int = connection.execute(
        f"SELECT count(*) FROM run WHERE {where}",  # noqa: S608  (constants)
        values,
    ).fetchone()[0]
    return count


def _conditions(workflow_id: str | None, status: StoredStatus | None) -> tuple[str, list[object]]:
    where, values = "TRUE", list[object]()
    if workflow_id is not None:
        where += " AND workflow_id = ?"
        values.append(workflow_id)
    if status is not None:
        where += " AND status = ?"
        values.append(status)
    return where, values
