"""Definitions, stored once under their hash for all runs and queue entries that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.store.encoding.compression import pack, unpack

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection


async def keep_definition(connection: Connection, name: str, definition: bytes) -> None:
    """Store a definition under its hash, unless it is stored already."""
    found = await connection.execute("SELECT 1 FROM definition WHERE hash = %s", (name,))
    if await found.fetchone() is None:
        await connection.execute(
            "INSERT INTO definition VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (name, pack(definition)),
        )


async def read_definition(connection: Connection, name: str) -> bytes:
    found = await connection.execute("SELECT body FROM definition WHERE hash = %s", (name,))
    row = await found.fetchone()
    if row is None:
        raise NotFound(f"there is no definition {name!r}; its run or queue entry was deleted")
    return unpack(row[0])


async def drop_unused_definition(connection: Connection, name: str) -> None:
    """Delete a definition that no run and no queue entry has."""
    await connection.execute(
        "DELETE FROM definition WHERE hash = %(hash)s"
        " AND NOT EXISTS (SELECT 1 FROM run WHERE definition = %(hash)s)"
        " AND NOT EXISTS (SELECT 1 FROM queued WHERE definition = %(hash)s)",
        {"hash": name},
    )
