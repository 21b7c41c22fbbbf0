"""Deletes old runs and returns disk space."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infloop.store.sqlite.definitions import drop_unused_definition

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

RUNS_PER_TRANSACTION = 20

MIN_FREE_PAGES = 256
"""With fewer free pages the file is not shrunk: the next runs use them."""

_PAGES_PER_VACUUM = 512


def prunable_runs(connection: sqlite3.Connection, workflow_id: str, keep: int) -> list[str]:
    """Return the ids of a workflow's finished runs beyond the newest `keep`."""
    rows = connection.execute(
        "SELECT id FROM run WHERE workflow_id = ? AND status NOT IN ('running', 'paused')"
        " ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?",
        (workflow_id, max(keep, 0)),
    )
    return [run_id for (run_id,) in rows]


def delete_runs(connection: sqlite3.Connection, run_ids: Sequence[str]) -> int:
    """Delete finished runs and everything that only they use; return how many existed.

    A run that was resumed meanwhile stays.
    """
    rows = connection.execute(
        "SELECT key, definition FROM run WHERE id IN (SELECT value FROM json_each(?))"
        " AND status NOT IN ('running', 'paused')",
        (json.dumps([*run_ids]),),
    ).fetchall()
    keys = json.dumps([key for key, _ in rows])
    connection.execute(
        "DELETE FROM blob WHERE hash IN (SELECT hash FROM blob_use"
        "  WHERE run IN (SELECT value FROM json_each(?1)))"
        " AND NOT EXISTS (SELECT 1 FROM blob_use WHERE blob_use.hash = blob.hash"
        "  AND run NOT IN (SELECT value FROM json_each(?1)))",
        (keys,),
    )
    connection.execute("DELETE FROM run WHERE key IN (SELECT value FROM json_each(?))", (keys,))
    for definition in {definition for _, definition in rows}:
        drop_unused_definition(connection, definition)
    return len(rows)


def free_pages(connection: sqlite3.Connection) -> int:
    """Return the number of unused pages in the file."""
    count: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return count


def vacuum_some(connection: sqlite3.Connection) -> int:
    """Remove some free pages from the file; return how many are left. Not in a transaction."""
    # executescript does not take the interpreter lock for every page.
    connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_PER_VACUUM})")
    return free_pages(connection)


def truncate_log(connection: sqlite3.Connection) -> None:
    """Checkpoint the write-ahead log and truncate it, unless a reader still uses it."""
    (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {timeout}")
