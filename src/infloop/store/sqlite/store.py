"""Opens the database file as a `Store`, with threads for reading and writing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.store.interfaces.run_log import OUTPUT_CAP
from infloop.store.sqlite.assembly import DATABASE_FILE, make_store
from infloop.store.sqlite.changes import SqliteChanges
from infloop.store.sqlite.database import Synchronous, open_for_reading, open_for_writing
from infloop.store.sqlite.readers import ReaderThreads
from infloop.store.sqlite.writer import WriterThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infloop.store.interfaces.store import Store

__all__ = ["DATABASE_FILE", "open_sqlite_store"]


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
    readers = await asyncio.to_thread(ReaderThreads, path)
    changes = SqliteChanges(await asyncio.to_thread(open_for_reading, path))
    writer = WriterThread(connection, str(path))

    async def close() -> None:
        await writer.close()
        await readers.close()
        changes.close()

    return make_store(
        writer,
        readers,
        changes,
        data_dir=data_dir,
        clock=clock,
        output_cap=output_cap,
        close=close,
    )
