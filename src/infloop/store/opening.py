"""Opens the store: the one place that chooses a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import MissingPart, SettingsError
from infloop.store.sqlite.store import database_error, open_sqlite_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infloop.store.interfaces.store import Store

POSTGRESQL = ("postgresql://", "postgres://")


async def open_store(data_dir: Path, clock: Callable[[], int], database: str = "") -> Store:
    """Open the store, creating it if it is missing.

    `database` is an address such as `postgresql://user@host/database`; without one the store is a
    file in the data directory. `clock` returns the time in milliseconds, for heartbeats.
    """
    if not database:
        return await open_sqlite_store(data_dir, clock)
    if not database.startswith(POSTGRESQL):
        scheme = database.partition(":")[0] if "://" in database else ""
        raise SettingsError(
            f"infloop has no database of the kind {scheme[:40]!r}; write the address as "
            "postgresql://user@host:port/database, or leave it out to use the data directory"
        )
    try:
        from infloop.store.postgresql.store import open_postgresql_store
    except ImportError as error:
        raise MissingPart(
            "PostgreSQL needs the extra `cluster`; install it with `pip install 'infloop[cluster]'`"
        ) from error
    return await open_postgresql_store(database)


def why_unreadable(data_dir: Path) -> str:
    """Return why the store of a data directory cannot be read; empty if it can or is new."""
    return database_error(data_dir)
