"""Forgetting old runs, and giving the disk back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

RUNS_AT_ONCE = 20
"""So many are forgotten in one transaction; then others get their turn."""

WORTH_RETURNING = 256
"""Free pages from which the file is made smaller; below, the next runs use them."""

_PAGES_AT_ONCE = 512


def runs_to_forget(connection: sqlite3.Connection, workflow_id: str, keep: int) -> list[str]:
    """Return the ids of a workflow's finished runs beyond the newest `keep`."""
    rows = connection.execute(
        "SELECT id FROM run WHERE workflow_id = ? AND status NOT IN ('running', 'paused')"
        " ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?",
        (workflow_id, max(keep, 0)),
    )
    return [run_id for (run_id,) in rows]


def forget_runs(connection: sqlite3.Connection, run_ids: Sequence[str]) -> int:
    """Delete finished runs and all that only they need; return how many were there."""
    return sum(forget_run(connection, run_id) for run_id in run_ids)


def forget_run(connection: sqlite3.Connection, run_id: str) -> bool:
    """Delete a finished run and all that only it needs; say whether it was there."""
    row = connection.execute(
        "SELECT key, definition FROM run WHERE id = ? AND status NOT IN ('running', 'paused')",
        (run_id,),
    ).fetchone()
    if row is None:  # resumed in the meantime, or another process was faster
        return False
    key, definition = row
    connection.execute(
        "DELETE FROM blob WHERE hash IN (SELECT hash FROM blob_use WHERE run = ?1) AND NOT EXISTS"
        " (SELECT 1 FROM blob_use WHERE blob_use.hash = blob.hash AND run <> ?1)",
        (key,),
    )
    connection.execute("DELETE FROM run WHERE key = ?", (key,))
    connection.execute(
        "DELETE FROM definition WHERE hash = ?1"
        " AND NOT EXISTS (SELECT 1 FROM run WHERE definition = ?1)",
        (definition,),
    )
    return True


def free_pages(connection: sqlite3.Connection) -> int:
    """Return how many pages of the file hold nothing."""
    count: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return count


def return_pages(connection: sqlite3.Connection) -> int:
    """Cut some free pages off the file; return how many are left. Runs outside a transaction."""
    # executescript, because it goes through the pages without taking the interpreter lock for each
    connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
    return free_pages(connection)


def empty_log(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file and cut it, if no reader is in the way."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
