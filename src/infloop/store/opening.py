"""Opens the store: the one place that chooses a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import SettingsError
from infloop.store.sqlite.store import database_error, open_sqlite_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infloop.store.interfaces.store import Store


async def open_store(data_dir: Path, clock: Callable[[], int], database: str = "") -> Store:
    """Open the store of a data directory, creating both if they are missing.

    `clock` returns the time in milliseconds, for heartbeats. `database` is the address of a
    database that several machines share.
    """
    if database:
        raise SettingsError(
            "INFLOOP_DATABASE: this infloop supports no other database than SQLite; unset it"
        )
    return await open_sqlite_store(data_dir, clock)


def why_unreadable(data_dir: Path) -> str:
    """Return why the store of a data directory cannot be read; empty if it can or is new."""
    return database_error(data_dir)
