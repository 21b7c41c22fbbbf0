"""Definitions, stored once under their hash for all runs and queue entries that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.store.encoding.compression import pack, unpack

if TYPE_CHECKING:
    import sqlite3


def keep_definition(connection: sqlite3.Connection, name: str, definition: bytes) -> None:
    """Store a definition under its hash, unless it is stored already."""
    if not connection.execute("SELECT 1 FROM definition WHERE hash = ?", (name,)).fetchone():
        connection.execute("INSERT INTO definition VALUES (?, ?)", (name, pack(definition)))


def read_definition(connection: sqlite3.Connection, name: str) -> bytes:
    row = connection.execute("SELECT body FROM definition WHERE hash = ?", (name,)).fetchone()
    if row is None:
        raise NotFound(f"there is no definition {name!r}; its run or queue entry was deleted")
    return unpack(row[0])


def drop_unused_definition(connection: sqlite3.Connection, name: str) -> None:
    """Delete a definition that no run and no queue entry has."""
    connection.execute(
        "DELETE FROM definition WHERE hash = ?1"
        " AND NOT EXISTS (SELECT 1 FROM run WHERE definition = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM queued WHERE definition = ?1)",
        (name,),
    )
