"""Opens the database file: private, migrated once, safe for several processes."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.errors import MissingPart, StoreError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.store.files import private_directory, private_file
from infloop.store.sqlite.errors import store_error
from infloop.store.sqlite.migrations import migrate

if TYPE_CHECKING:
    from pathlib import Path

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

BUSY_MS = 30_000
"""How long a statement waits for another process before it fails."""

_OLDEST_SQLITE = (3, 37, 0)  # strict tables
_OPENING_SECONDS = 60
_LOG_PAGES = 4_000  # a page that is written repeatedly is copied to the file once per checkpoint
LOG_BYTES = 16 << 20
"""The length of the write-ahead log at a checkpoint."""


def open_for_writing(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Create or open the database at `path`, migrate its schema, and return a connection.

    The file is 0600, and a directory made for it 0700. Blocks: call it in a thread.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise MissingPart(
            f"this Python has SQLite {sqlite3.sqlite_version} and infloop needs "
            f"{'.'.join(map(str, _OLDEST_SQLITE))} or newer; use another Python"
        )
    try:
        private_directory(path.parent)
        private_file(path)
        # Two processes cannot safely turn one new file into a WAL database.
        with lock_directory(path.parent, _OPENING_SECONDS, "opening the database"):
            return _prepare(path, synchronous)
    except sqlite3.Error as error:
        raise store_error(error, str(path)) from error
    except OSError as error:
        raise StoreError(
            f"{str(path)!r} cannot be used: {error}; check the data directory's owner and mode, "
            "or set INFLOOP_DATA_DIR to another"
        ) from error


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write; the database must exist."""
    connection = _connect(path)
    refuse_writing(connection)
    return connection


def refuse_writing(connection: sqlite3.Connection) -> None:
    """Let a connection read from now on, and nothing else."""
    connection.execute("PRAGMA query_only = ON")


def _prepare(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    connection = _connect(path)
    try:
        # Only effective before the first table is created.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        # Overwrites deleted content in pages that are written anyway.
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        migrate(connection, str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    # No implicit transactions; several threads use a connection, but never at the same time.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection
