"""Who may write to a run, who lives, who is asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import Fenced, NotFound
from infloop.store.base import InstanceRow, Ownership, StopRequest
from infloop.store.sqlite.encoding import mended_text
from infloop.store.sqlite.listing import LAST_SEQ

if TYPE_CHECKING:
    import sqlite3


def take_over(
    connection: sqlite3.Connection, run_id: str, owner: str, expect_dead: str | None
) -> Ownership:
    """Give the run to `owner` under the next epoch; `expect_dead` must still own it, if given."""
    taken = connection.execute(
        "UPDATE run SET owner = ?1, epoch = epoch + 1, status = 'running', finished_at = NULL,"  # noqa: S608
        " error = '', failed_step = '' WHERE id = ?2 AND (?3 IS NULL OR owner = ?3)"
        f" RETURNING epoch, {LAST_SEQ}",
        (owner, run_id, expect_dead),
    ).fetchall()
    if taken:
        return Ownership(*taken[0])
    row = connection.execute("SELECT owner FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r} to take over")
    raise Fenced(
        f"run {run_id!r} was to be taken from {expect_dead!r} but belongs to {row[0]!r} by now"
    )


def request_stop(connection: sqlite3.Connection, run_id: str, reason: str, time: int) -> None:
    """Leave a request for the run's owner; a later one replaces it."""
    left = connection.execute(
        "INSERT OR REPLACE INTO stop_request SELECT key, ?, ? FROM run WHERE id = ?",
        (mended_text(reason), time, run_id),
    ).rowcount
    if not left:
        raise NotFound(f"there is no run {run_id!r} to stop")


def pending_requests(connection: sqlite3.Connection, instance_id: str) -> list[StopRequest]:
    """Return what is asked of the runs of one process that have not settled."""
    rows = connection.execute(
        "SELECT run.id, reason, time FROM stop_request JOIN run ON run.key = stop_request.run"
        " WHERE owner = ? AND status = 'running' ORDER BY time, run.id",
        (instance_id,),
    )
    return [StopRequest(*row) for row in rows]


def put_instance(connection: sqlite3.Connection, instance: InstanceRow) -> None:
    """Store a process's description of itself."""
    connection.execute(
        "INSERT OR REPLACE INTO instance VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            instance.id,
            instance.pid,
            instance.process_started,
            instance.boot_id,
            instance.host,
            instance.started_at,
            instance.beat_at,
        ),
    )


def beat_instance(connection: sqlite3.Connection, instance_id: str, time: int) -> None:
    """Note that the process was well at `time`."""
    connection.execute("UPDATE instance SET beat_at = ? WHERE id = ?", (time, instance_id))


def read_instances(connection: sqlite3.Connection, instance_id: str | None) -> list[InstanceRow]:
    """Return one process, or all of them, oldest first."""
    rows = connection.execute(
        "SELECT id, pid, process_started, boot_id, host, started_at, beat_at FROM instance"
        " WHERE ?1 IS NULL OR id = ?1 ORDER BY started_at, id",
        (instance_id,),
    )
    return [InstanceRow(*row) for row in rows]


def drop_instance(connection: sqlite3.Connection, instance_id: str) -> bool:
    """Forget a process that owns no run in flight; say whether it went."""
    gone = connection.execute(
        "DELETE FROM instance WHERE id = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM run WHERE status = 'running' AND owner = ?1)",
        (instance_id,),
    ).rowcount
    return gone > 0
