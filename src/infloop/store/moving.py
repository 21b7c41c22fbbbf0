"""Moves everything from the SQLite file of a data directory into an empty PostgreSQL database.

- All or nothing: the target is filled in one transaction, which is committed when every table has
  as many rows as its source. The source is only read, and stays.
- Table by table: what is in the rows is encoded alike in both databases (`encoding`).
- The search index is not copied. The target makes it again when it is first searched.
- Processes are not copied: runs that have not settled are interrupted, and entries that were taken
  wait again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from infloop.errors import StoreError, UsageError
from infloop.store.postgresql.address import Address
from infloop.store.postgresql.connections import Database, close_quietly
from infloop.store.postgresql.errors import store_error
from infloop.store.postgresql.known_directories import this_machine
from infloop.store.postgresql.store import open_postgresql_store
from infloop.store.sqlite.listing import RUN_COLUMNS
from infloop.store.sqlite.store import DATABASE_FILE, open_sqlite_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infloop.store.postgresql.connections import Connection


class Table(NamedTuple):
    """A table of the target: its columns, and what they are in the source if it is called so.

    `select` replaces the columns in the query, and `source` is the table's name there.
    """

    name: str
    columns: str
    select: str = ""
    source: str = ""
    flags: tuple[str, ...] = ()
    number: str = ""


_RUN = (
    "id, workflow_id, workflow_name, definition, correlation_id, cause, owner, epoch, status,"
    " error, failed_step, started_at, finished_at, last_seq, events, steps, output_bytes"
)
_BATCH = "last_seq, events, steps, output_bytes, kind, correlation_id, blobs, body"


def _own(total: str) -> str:
    """Return the SQL for what a batch adds: the source has what the run adds up to after it."""
    return f"{total} - lag({total}, 1, 0) OVER (PARTITION BY id >> 32 ORDER BY id)"


_OWN_BATCH = (
    f"last_seq, {_own('events')}, {_own('steps')}, {_own('output_bytes')}, kind, correlation_id,"
    " blobs, body"
)
_CALL = (
    "id, run, workflow, path, attempt, provider, model, kind, instance, reserved_at, cost,"
    " cost_known, input_tokens, output_tokens, cached_tokens, settled_at, outcome, held"
)
_QUEUED = (
    "key, id, run, workflow, correlation_id, cause, priority, idempotency_key, fingerprint,"
    " queued_at, first_position, state, held, owner, reason, requires, max_concurrent, definition,"
    " body"
)
_APPROVAL = (
    "key, id, run, workflow, path, kind, title, asked_at, expires_at, owner, state, answered_by,"
    " answered_at, note, details, action, used_at"
)
_REFUSED = (
    "key, trigger_id, name, kind, workflow, reason, message, correlation_id, at, first_at, count"
)

TABLES = (
    Table("definition", "hash, body"),
    Table("run", f"key, {_RUN}", select=f"key, {RUN_COLUMNS}", number="key"),
    Table(
        "batch",
        f"run, first_seq, {_BATCH}",
        select=f"id >> 32, id & 0xFFFFFFFF, {_OWN_BATCH}",
        source="stretch",
    ),
    Table("checkpoint", "run, seq, state"),
    Table("scope", "run, blobs, body"),
    Table("blob", "hash, characters"),
    Table("blob_part", "hash, number, body"),
    Table("blob_use", "run, hash"),
    Table("result_pack", "run, number, size, digest"),
    Table("result_part", "run, number, part, body"),
    Table("place", "key, machine, path", select="key, :machine, path", number="key"),
    Table("stop_request", "run, reason, time"),
    Table("call", _CALL, flags=("cost_known",), number="id"),
    Table("queued", _QUEUED, flags=("held",), number="key"),
    Table("approval", _APPROVAL, number="key"),
    Table("refused_firing", _REFUSED, number="key"),
)
"""What is moved, in an order in which rows come after those that they refer to."""


async def move(data_dir: Path, clock: Callable[[], int], target: str) -> list[tuple[str, int]]:
    """Copy the store of a data directory into an empty database; return the rows of each table.

    Raises UsageError if a process uses the source, or if the target has runs already.
    """
    file = data_dir / DATABASE_FILE
    if not file.exists():
        raise UsageError(f"there is no {str(file)!r} to move; INFLOOP_DATA_DIR names its directory")
    await _refuse_used(data_dir, clock)
    await (await open_postgresql_store(target)).close()  # makes the tables
    database = Database(Address(target))
    connection = await database.connect()
    try:
        return await _copy_all(file, connection)
    except psycopg.Error as error:
        raise store_error(error, database.shown) from error
    finally:
        await close_quietly(connection)


async def _refuse_used(data_dir: Path, clock: Callable[[], int]) -> None:
    """Raise UsageError while a process uses the source; bring its schema up to date."""
    async with await open_sqlite_store(data_dir, clock) as store:
        rows = await store.liveness.instances()
        states = await store.liveness.states([row.id for row in rows])
    for row in rows:
        if states[row.id] != "dead":
            raise UsageError(
                f"process {row.pid} ({row.kind}) uses {str(data_dir)!r}; stop it first"
            )


async def _copy_all(file: Path, connection: Connection) -> list[tuple[str, int]]:
    with closing(await asyncio.to_thread(_open_source, file)) as source:
        async with connection.transaction():
            # Reading a large source takes its time.
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await connection.execute("LOCK TABLE run, queued, call IN EXCLUSIVE MODE")
            await _refuse_filled(connection)
            return [await _copy(source, connection, table) for table in TABLES]


def _open_source(file: Path) -> sqlite3.Connection:
    """Open the source for reading, as it is at one moment."""
    uri = f"{file.absolute().as_uri()}?mode=ro"
    source = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    source.execute("BEGIN")
    return source


async def _refuse_filled(connection: Connection) -> None:
    for table in TABLES:
        found = await connection.execute(f"SELECT 1 FROM {table.name} LIMIT 1".encode())  # noqa: S608
        if await found.fetchone() is not None:
            raise UsageError(
                f"the target is not empty: its table {table.name!r} has rows; name an empty "
                "database, or drop the schema `infloop` there"
            )


async def _copy(
    source: sqlite3.Connection, connection: Connection, table: Table
) -> tuple[str, int]:
    names = table.columns.split(", ")
    flags = [names.index(name) for name in table.flags]
    origin = table.source or table.name
    query = f"SELECT {table.select or table.columns} FROM {origin}"  # noqa: S608  (constants)
    given = {"machine": this_machine()} if ":machine" in query else {}
    rows = await asyncio.to_thread(source.execute, query, given)
    copied = 0
    copy = f"COPY {table.name} ({table.columns}) FROM STDIN".encode()
    async with connection.cursor() as cursor, cursor.copy(copy) as target:
        while some := await asyncio.to_thread(rows.fetchmany, 500):
            for row in some:
                await target.write_row(_converted(row, flags))
            copied += len(some)
    await _verify(source, connection, table, origin, copied)
    if table.number:
        await connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table.name}', '{table.number}'),"  # noqa: S608
            f" (SELECT max({table.number}) FROM {table.name}))".encode()
        )
    return table.name, copied


def _converted(row: tuple[Any, ...], flags: list[int]) -> tuple[Any, ...]:
    """Return a row with the numbers of SQLite's flags as truth values."""
    if not flags:
        return row
    values = list(row)
    for index in flags:
        values[index] = bool(values[index])
    return tuple(values)


async def _verify(
    source: sqlite3.Connection, connection: Connection, table: Table, origin: str, copied: int
) -> None:
    (expected,) = source.execute(f"SELECT count(*) FROM {origin}").fetchone()  # noqa: S608
    found = await connection.execute(f"SELECT count(*) FROM {table.name}".encode())  # noqa: S608
    (stored,) = await found.fetchone() or (None,)
    if not expected == copied == stored:
        raise StoreError(
            f"of {expected} rows of {table.name!r} {stored} arrived; nothing was moved"
        )
