"""Taking over a run: a new owner and the next epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import Fenced, NotFound
from infloop.store.interfaces.run_log import Ownership
from infloop.store.sqlite.listing import LAST_SEQ

if TYPE_CHECKING:
    import sqlite3


def take_over(
    connection: sqlite3.Connection,
    run_id: str,
    owner: str,
    expect_dead: str | None,
    expect_status: str | None,
) -> Ownership:
    """Give a run to `owner` under the next epoch, if its owner and status are the expected ones."""
    taken = connection.execute(
        "UPDATE run SET owner = ?1, epoch = epoch + 1, status = 'running', finished_at = NULL,"  # noqa: S608
        " error = '', failed_step = '' WHERE id = ?2 AND (?3 IS NULL OR owner = ?3)"
        f" AND (?4 IS NULL OR status = ?4) RETURNING epoch, {LAST_SEQ}",
        (owner, run_id, expect_dead, expect_status),
    ).fetchall()
    if taken:
        return Ownership(*taken[0])
    row = connection.execute("SELECT owner, status FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r} to take over")
    raise Fenced(
        f"run {run_id!r} is now {row[1]} and belongs to {row[0]!r}: it cannot be taken over from "
        f"{expect_dead!r}"
    )
