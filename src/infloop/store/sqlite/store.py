"""Opens the database file as a `Store`."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from infloop.store.interfaces.run_log import OUTPUT_CAP
from infloop.store.interfaces.store import Store
from infloop.store.sqlite.approvals import SqliteApprovals
from infloop.store.sqlite.changes import SqliteChanges
from infloop.store.sqlite.database import Synchronous, open_for_reading, open_for_writing
from infloop.store.sqlite.ledger import SqliteLedger
from infloop.store.sqlite.liveness import SqliteLiveness
from infloop.store.sqlite.queue import SqliteQueue
from infloop.store.sqlite.rate_limits import SqliteRateLimits
from infloop.store.sqlite.readers import Readers
from infloop.store.sqlite.refusals import SqliteRefusals
from infloop.store.sqlite.results import SqliteResults
from infloop.store.sqlite.run_log import SqliteRunLog
from infloop.store.sqlite.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATABASE_FILE = "journal.db"


async def open_sqlite_store(
    data_dir: Path,
    clock: Callable[[], int],
    *,
    synchronous: Synchronous = "FULL",
    output_cap: int = OUTPUT_CAP,
) -> Store:
    """Open the database in `data_dir`, creating both if they are missing.

    `clock` returns the time for heartbeats. With `NORMAL`, what was acknowledged survives the
    death of the process, but not always a power failure.
    """
    path = data_dir / DATABASE_FILE
    connection = await asyncio.to_thread(open_for_writing, path, synchronous)
    readers = await asyncio.to_thread(Readers, path)
    changes = SqliteChanges(await asyncio.to_thread(open_for_reading, path))
    writer = Writer(connection, str(path))

    async def close() -> None:
        await writer.close()
        await readers.close()
        changes.close()

    return Store(
        run_log=SqliteRunLog(writer, readers, output_cap),
        ledger=SqliteLedger(writer, readers),
        queue=SqliteQueue(writer, readers, output_cap),
        refusals=SqliteRefusals(writer, readers),
        rates=SqliteRateLimits(writer),
        approvals=SqliteApprovals(writer, readers),
        liveness=SqliteLiveness(writer, readers, data_dir / "instances", clock),
        results=SqliteResults(writer, readers),
        changes=changes,
        close=close,
    )


def database_error(data_dir: Path) -> str:
    """Return why the database cannot be read; empty if it can, or is not there yet."""
    file = data_dir / DATABASE_FILE
    try:
        if not file.exists():
            return ""
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (OSError, sqlite3.Error) as error:
        return str(error)
    return ""
