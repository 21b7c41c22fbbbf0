"""Large texts, stored once by hash (see `encoding/large_texts`).

A text is deleted with the last run that uses it. If another process starts to use it at the same
moment, one of the two transactions fails by the foreign key of `blob_use`, and the writer repeats
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.store.encoding.batches import decode_batch
from infloop.store.encoding.large_texts import (
    PageRange,
    Reference,
    chunks,
    decode_references,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from infloop.model.events import Recorded
    from infloop.store.encoding.batches import Row
    from infloop.store.interfaces.run_log import TextPage
    from infloop.store.postgresql.connections import Connection


async def store_texts(connection: Connection, run: int, texts: Mapping[str, str]) -> None:
    """Store each text unless it is stored already, and note that the run uses it."""
    for name, text in sorted(texts.items()):  # in one order, so that no two wait for each other
        added = await connection.execute(
            "INSERT INTO blob (hash, characters) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (name, len(text)),
        )
        if added.rowcount:
            for number, body in chunks(text):
                await connection.execute(
                    "INSERT INTO blob_part VALUES (%s, %s, %s)", (name, number, body)
                )
        await connection.execute(
            "INSERT INTO blob_use (run, hash) VALUES (%s, %s) ON CONFLICT DO NOTHING", (run, name)
        )


async def read_texts(connection: Connection, references: Iterable[Reference]) -> dict[str, str]:
    """Return whole texts by hash."""
    return {
        each.hash: (await read_page(connection, each.hash, 0, each.characters)).text
        for each in references
    }


async def decode_row(connection: Connection, run_id: str, row: Row) -> list[Recorded]:
    """Return the items of a stored row, with their large texts."""
    references = [] if row[3] is None else decode_references(row[3])
    texts = await read_texts(connection, references)
    return decode_batch(run_id, row, lambda reference: texts[reference.hash])


async def read_page(connection: Connection, name: str, offset: int, limit: int) -> TextPage:
    """Return `limit` characters of a stored text from `offset` on, reading only their chunks."""
    found = await connection.execute("SELECT characters FROM blob WHERE hash = %s", (name,))
    row = await found.fetchone()
    if row is None:
        raise NotFound(f"no stored text has the hash {name!r}")
    page = PageRange.of(offset, limit, row[0])
    bodies = await connection.execute(
        "SELECT body FROM blob_part WHERE hash = %s AND number BETWEEN %s AND %s ORDER BY number",
        (name, page.first_chunk, page.last_chunk),
        binary=True,
    )
    return page.page([body for (body,) in await bodies.fetchall()])
