"""Tells whether a transaction was committed whose answer was lost with the connection.

Each writer has a row, and each of its transactions writes another number into it. The number that
is there after the connection was lost is that of the last transaction that was committed.

Why not the id of the transaction (`pg_xact_status`): when the server crashes, the ids of lost
transactions are given to others, whose fate would then be taken for that of the lost ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.store.postgresql.connections import Connection

FORGET_AFTER = "interval '30 days'"
"""When the row of a writer that did nothing is deleted; it is made again when it is needed."""


class CommitMarks:
    """The row of one writer."""

    def __init__(self) -> None:
        self._writer: int | None = None
        self._mark = 0

    async def begin(self, connection: Connection, locks: Sequence[int]) -> int:
        """Begin a transaction that holds these advisory locks; return its number."""
        self._mark += 1
        while True:
            if self._writer is None:
                self._writer = await _add_row(connection)
            cursor = await connection.execute(_begin_sql(self._mark, self._writer, locks))
            cursor.nextset()
            if await cursor.fetchone() is not None:
                return self._mark
            await connection.execute("ROLLBACK")
            self._writer = None

    async def was_committed(self, connection: Connection, mark: int) -> bool:
        """Say whether the transaction with this number was committed.

        If the server has not noticed yet that its connection is lost, its lock is waited for.
        """
        cursor = await connection.execute(
            "SELECT mark FROM commit_mark WHERE writer = %s FOR UPDATE", (self._writer,)
        )
        return await cursor.fetchone() == (mark,)

    async def remove(self, connection: Connection) -> None:
        """Delete the row, because the writer ends."""
        if self._writer is not None:
            await connection.execute("DELETE FROM commit_mark WHERE writer = %s", (self._writer,))


def _begin_sql(mark: int, writer: int, locks: Sequence[int]) -> bytes:
    """Return statements without parameters, which are one message to the server."""
    update = f"UPDATE commit_mark SET mark = {mark}, at = now() WHERE writer = {writer}"  # noqa: S608
    taken = "".join(f"; SELECT pg_advisory_xact_lock({lock})" for lock in locks)
    return f"BEGIN; {update} RETURNING mark{taken}".encode()


async def _add_row(connection: Connection) -> int:
    cursor = await connection.execute("INSERT INTO commit_mark DEFAULT VALUES RETURNING writer")
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def delete_unused_marks(connection: Connection) -> None:
    """Delete the rows of writers that did nothing for long: most of them were killed."""
    await connection.execute(
        f"DELETE FROM commit_mark WHERE at < now() - {FORGET_AFTER}".encode()  # noqa: S608
    )
