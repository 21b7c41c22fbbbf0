"""Results of runs in the database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import Fenced, NotFound
from infloop.store.interfaces.results import (
    RunResults,
    StoredPack,
    check_pack_size,
    checked,
    digest_of,
    parts,
)

if TYPE_CHECKING:
    import sqlite3

    from infloop.store.sqlite.access import Readers, Writer


class SqliteResults(RunResults):
    """The results of all runs in the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def save(self, run_id: str, epoch: int, pack: bytes) -> StoredPack:
        check_pack_size(pack, 0)
        return await self._writer.submit(
            partial(_save, run_id=run_id, epoch=epoch, pack=pack, digest=digest_of(pack))
        )

    async def packs(self, run_id: str) -> list[StoredPack]:
        return await self._readers.run(_packs, run_id)

    async def read(self, run_id: str, pack: StoredPack) -> bytes:
        return checked(pack, await self._readers.run(_read, run_id, pack.number))


def _save(
    connection: sqlite3.Connection, *, run_id: str, epoch: int, pack: bytes, digest: str
) -> StoredPack:
    row = connection.execute("SELECT key, epoch FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    key, current = row
    if current != epoch:
        raise Fenced(f"run {run_id!r} was taken over: it has epoch {current}, not {epoch}")
    number, stored = connection.execute(
        "SELECT coalesce(max(number), 0) + 1, coalesce(sum(size), 0) FROM result_pack"
        " WHERE run = ?",
        (key,),
    ).fetchone()
    check_pack_size(pack, stored)
    connection.execute(
        "INSERT INTO result_pack (run, number, size, digest) VALUES (?, ?, ?, ?)",
        (key, number, len(pack), digest),
    )
    connection.executemany(
        "INSERT INTO result_part (run, number, part, body) VALUES (?, ?, ?, ?)",
        ((key, number, part, body) for part, body in enumerate(parts(pack))),
    )
    return StoredPack(number, len(pack), digest)


def _packs(connection: sqlite3.Connection, run_id: str) -> list[StoredPack]:
    rows = connection.execute(
        "SELECT number, size, digest FROM result_pack JOIN run ON run.key = result_pack.run"
        " WHERE run.id = ? ORDER BY number",
        (run_id,),
    )
    return [StoredPack(*row) for row in rows]


def _read(connection: sqlite3.Connection, run_id: str, number: int) -> bytes:
    rows = connection.execute(
        "SELECT body FROM result_part JOIN run ON run.key = result_part.run"
        " WHERE run.id = ? AND number = ? ORDER BY part",
        (run_id, number),
    )
    return b"".join(body for (body,) in rows)
