"""Taking over a run: a new owner and the next epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import Fenced, NotFound
from infloop.store.interfaces.run_log import Ownership

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection


async def take_over(
    connection: Connection,
    run_id: str,
    owner: str,
    expect_dead: str | None,
    expect_status: str | None,
) -> Ownership:
    """Give a run to `owner` under the next epoch, if its owner and status are the expected ones."""
    cursor = await connection.execute(
        "UPDATE run SET owner = %(owner)s, epoch = epoch + 1, status = 'running',"
        " finished_at = NULL, error = '', failed_step = '' WHERE id = %(id)s"
        " AND (%(dead)s::text IS NULL OR owner = %(dead)s)"
        " AND (%(status)s::text IS NULL OR status = %(status)s) RETURNING epoch, last_seq",
        {"owner": owner, "id": run_id, "dead": expect_dead, "status": expect_status},
    )
    taken = await cursor.fetchone()
    if taken is not None:
        return Ownership(*taken)
    found = await connection.execute("SELECT owner, status FROM run WHERE id = %s", (run_id,))
    row = await found.fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r} to take over")
    raise Fenced(
        f"run {run_id!r} is now {row[1]} and belongs to {row[0]!r}: it cannot be taken over from "
        f"{expect_dead!r}"
    )
