"""Large texts, stored once by hash (see `encoding/large_texts`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.store.encoding.large_texts import PageRange, Reference, chunks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from infloop.store.interfaces.run_log import TextPage


def store_texts(connection: sqlite3.Connection, run: int, texts: Mapping[str, str]) -> None:
    """Store each text unless it is stored already, and note that the run uses it."""
    for name, text in texts.items():
        added = connection.execute(
            "INSERT OR IGNORE INTO blob (hash, characters) VALUES (?, ?)", (name, len(text))
        ).rowcount
        if added:
            for number, body in chunks(text):
                connection.execute("INSERT INTO blob_part VALUES (?, ?, ?)", (name, number, body))
        connection.execute("INSERT OR IGNORE INTO blob_use (run, hash) VALUES (?, ?)", (run, name))


def text_reader(connection: sqlite3.Connection) -> Callable[[Reference], str]:
    """Return what reads a whole text, for `restore_texts`."""
    return lambda reference: read_page(connection, reference.hash, 0, reference.characters).text


def read_page(connection: sqlite3.Connection, name: str, offset: int, limit: int) -> TextPage:
    """Return `limit` characters of a stored text from `offset` on, reading only their chunks."""
    page = PageRange.of(offset, limit, _length(connection, name))
    bodies = connection.execute(
        "SELECT body FROM blob_part WHERE hash = ? AND number BETWEEN ? AND ? ORDER BY number",
        (name, page.first_chunk, page.last_chunk),
    )
    return page.page(body for (body,) in bodies)


def _length(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT characters FROM blob WHERE hash = ?", (name,)).fetchone()
    if row is None:
        raise NotFound(f"no stored text has the hash {name!r}")
    length: int = row[0]
    return length
