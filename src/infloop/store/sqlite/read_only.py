"""Opens the database for a command that only reads, without an event loop.

Everything happens on the caller's thread, so nothing waits and a coroutine that reads ends in one
step (see `infloop.app.reading`). Work that writes is refused.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from infloop.store.interfaces.run_log import OUTPUT_CAP
from infloop.store.sqlite.assembly import DATABASE_FILE, make_store
from infloop.store.sqlite.changes import SqliteChanges
from infloop.store.sqlite.database import open_for_writing, refuse_writing
from infloop.store.sqlite.errors import store_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Concatenate

    from infloop.store.interfaces.store import Store

T = TypeVar("T")
P = ParamSpec("P")


def open_read_only(data_dir: Path, clock: Callable[[], int]) -> Store:
    """Open the database in `data_dir`; one that is missing or old is created or migrated first."""
    path = data_dir / DATABASE_FILE
    connection = open_for_writing(path, "FULL")
    refuse_writing(connection)

    async def close() -> None:
        connection.close()

    return make_store(
        _NoWriter(),
        _Reader(connection, str(path)),
        SqliteChanges(connection),
        data_dir=data_dir,
        clock=clock,
        output_cap=OUTPUT_CAP,
        close=close,
    )


class _Reader:
    """Reads on the caller's thread; it implements `access.Readers`."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    async def run(
        self,
        read: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        try:
            self._connection.execute("BEGIN")
            try:
                return read(self._connection, *args, **kwargs)
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error


class _NoWriter:
    """Refuses to write; it implements `access.Writer`."""

    single_run = False

    def submit(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a command that only reads has tried to write")

    def defer(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a command that only reads has tried to write")

    async def flush_deferred(self) -> None:
        """Nothing was deferred."""


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
