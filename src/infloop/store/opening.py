"""Opens the store: the one place that chooses a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import InfloopError, MissingPart, SettingsError
from infloop.store.interfaces.liveness import LOST_AFTER_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infloop.store.interfaces.store import Store

POSTGRESQL = ("postgresql://", "postgres://")


async def open_store(
    data_dir: Path,
    clock: Callable[[], int],
    database: str = "",
    *,
    lost_after_ms: int = LOST_AFTER_MS,
) -> Store:
    """Open the store, creating it if it is missing.

    `database` is an address such as `postgresql://user@host/database`; without one the store is a
    file in the data directory. `clock` returns the time in milliseconds, for heartbeats. In a
    database, others take this process for dead when they did not hear of it for `lost_after_ms`.
    """
    if not database:
        from infloop.store.sqlite.store import open_sqlite_store

        return await open_sqlite_store(data_dir, clock)
    check_address(database)
    try:
        from infloop.store.postgresql.store import open_postgresql_store
    except ImportError as error:
        raise _missing() from error
    return await open_postgresql_store(database, lost_after_ms=lost_after_ms)


def open_read_only(data_dir: Path, clock: Callable[[], int]) -> Store:
    """Open the store in the data directory for reading alone, without an event loop."""
    from infloop.store.sqlite.read_only import open_read_only

    return open_read_only(data_dir, clock)


def check_address(database: str) -> None:
    """Raise SettingsError unless a text begins as the address of a database does."""
    if not database.startswith(POSTGRESQL):
        scheme = database.partition(":")[0] if "://" in database else ""
        raise SettingsError(
            f"infloop has no database of the kind {scheme[:40]!r}; write the address as "
            "postgresql://user@host:port/database, or leave it out to use the data directory"
        )


def _missing() -> MissingPart:
    return MissingPart(
        "PostgreSQL needs the extra `cluster`; install it with `pip install 'infloop[cluster]'`"
    )


def shown_address(database: str) -> str:
    """Return an address without its password; raise SettingsError if it is none."""
    check_address(database)
    try:
        from infloop.store.postgresql.address import Address
    except ImportError as error:
        raise _missing() from error
    return Address(database).shown


class Moved(NamedTuple):
    """How many rows of a table were copied from one database to another."""

    table: str
    rows: int


async def move_store(data_dir: Path, clock: Callable[[], int], target: str) -> list[Moved]:
    """Copy the store of a data directory into an empty database; see `moving`."""
    check_address(target)
    try:
        from infloop.store.moving import move
    except ImportError as error:
        raise _missing() from error
    return [Moved(table, rows) for table, rows in await move(data_dir, clock, target)]


async def why_unreadable(data_dir: Path, database: str = "") -> str:
    """Return why the store cannot be read; empty if it can or is new."""
    if not database:
        from infloop.store.sqlite.read_only import database_error

        return database_error(data_dir)
    try:
        async with await open_store(data_dir, lambda: 0, database):
            return ""
    except InfloopError as error:
        return str(error)
