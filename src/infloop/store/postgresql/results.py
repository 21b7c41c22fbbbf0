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
    from infloop.store.postgresql.connections import Connection
    from infloop.store.postgresql.readers import Readers
    from infloop.store.postgresql.writer import Writer


class PostgresqlResults(RunResults):
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


async def _save(
    connection: Connection, *, run_id: str, epoch: int, pack: bytes, digest: str
) -> StoredPack:
    # The lock keeps other processes from taking the run over until this is committed.
    cursor = await connection.execute(
        "SELECT key, epoch FROM run WHERE id = %s FOR NO KEY UPDATE", (run_id,)
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    key, current = row
    if current != epoch:
        raise Fenced(f"run {run_id!r} was taken over: it has epoch {current}, not {epoch}")
    cursor = await connection.execute(
        "SELECT coalesce(max(number), 0) + 1, coalesce(sum(size), 0)::bigint FROM result_pack"
        " WHERE run = %s",
        (key,),
    )
    found = await cursor.fetchone()
    assert found is not None
    number, stored = found
    check_pack_size(pack, stored)
    await connection.execute(
        "INSERT INTO result_pack (run, number, size, digest) VALUES (%s, %s, %s, %s)",
        (key, number, len(pack), digest),
    )
    for part, body in enumerate(parts(pack)):
        await connection.execute(
            "INSERT INTO result_part (run, number, part, body) VALUES (%s, %s, %s, %s)",
            (key, number, part, body),
        )
    return StoredPack(number, len(pack), digest)


async def _packs(connection: Connection, run_id: str) -> list[StoredPack]:
    cursor = await connection.execute(
        "SELECT number, size, digest FROM result_pack JOIN run ON run.key = result_pack.run"
        " WHERE run.id = %s ORDER BY number",
        (run_id,),
    )
    return [StoredPack(*row) for row in await cursor.fetchall()]


async def _read(connection: Connection, run_id: str, number: int) -> bytes:
    cursor = await connection.execute(
        "SELECT body FROM result_part JOIN run ON run.key = result_part.run"
        " WHERE run.id = %s AND number = %s ORDER BY part",
        (run_id, number),
        binary=True,
    )
    return b"".join([body for (body,) in await cursor.fetchall()])
