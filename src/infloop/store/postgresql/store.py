"""Opens the database at an address as a `Store`."""

from __future__ import annotations

from contextlib import AsyncExitStack

import psycopg

from infloop.store.interfaces.liveness import LOST_AFTER_MS
from infloop.store.interfaces.run_log import OUTPUT_CAP
from infloop.store.interfaces.store import Store
from infloop.store.postgresql.address import Address
from infloop.store.postgresql.approvals import PostgresqlApprovals
from infloop.store.postgresql.changes import PostgresqlChanges, listen
from infloop.store.postgresql.connections import Database, close_quietly
from infloop.store.postgresql.errors import store_error
from infloop.store.postgresql.jobs_schema import check_library
from infloop.store.postgresql.ledger import PostgresqlLedger
from infloop.store.postgresql.liveness import PostgresqlLiveness
from infloop.store.postgresql.migrations import migrate
from infloop.store.postgresql.queue import PostgresqlQueue
from infloop.store.postgresql.rate_limits import PostgresqlRateLimits
from infloop.store.postgresql.readers import Readers
from infloop.store.postgresql.refusals import PostgresqlRefusals
from infloop.store.postgresql.results import PostgresqlResults
from infloop.store.postgresql.run_log import PostgresqlRunLog
from infloop.store.postgresql.writer import Writer


async def open_postgresql_store(
    address: str, *, output_cap: int = OUTPUT_CAP, lost_after_ms: int = LOST_AFTER_MS
) -> Store:
    """Open the database, creating its schema if it is missing.

    Others take this process for dead when they did not hear of it for `lost_after_ms`.
    """
    check_library()
    database = Database(Address(address))
    async with AsyncExitStack() as stack:
        connection = await database.connect()
        stack.push_async_callback(close_quietly, connection)
        try:
            await migrate(connection, database.shown)
        except psycopg.Error as error:
            raise store_error(error, database.shown) from error
        listener = await database.connect(synced=False)
        stack.push_async_callback(close_quietly, listener)
        await listen(listener)
        stack.pop_all()
    changes = PostgresqlChanges(database, listener)
    writer = Writer(database, connection, changes, output_cap)
    readers = Readers(database)
    liveness = PostgresqlLiveness(database, writer, readers, lost_after_ms)

    async def close() -> None:
        await writer.close()
        await readers.close()
        await liveness.close()
        await changes.close()

    return Store(
        run_log=PostgresqlRunLog(writer, readers),
        ledger=PostgresqlLedger(writer, readers),
        queue=PostgresqlQueue(writer, readers),
        refusals=PostgresqlRefusals(writer, readers),
        rates=PostgresqlRateLimits(writer),
        approvals=PostgresqlApprovals(writer, readers),
        liveness=liveness,
        results=PostgresqlResults(writer, readers),
        changes=changes,
        close=close,
    )


async def database_error(address: str) -> str:
    """Return why the database cannot be used; empty if it can."""
    try:
        database = Database(Address(address))
        await close_quietly(await database.connect())
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the answer)
        return str(error)
    return ""
