"""What an SQLite error means to a person."""

from __future__ import annotations

import sqlite3

from infloop.errors import StoreError

_PRIMARY_CODE = 0xFF

_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then resume the run",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; check it and its free space",
    sqlite3.SQLITE_BUSY: "another process kept the database locked for too long; try again",
    sqlite3.SQLITE_READONLY: "the database is read-only here; check its owner and mode",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened; check that its directory is writable",
    sqlite3.SQLITE_CORRUPT: "the database is damaged; restore a copy or use another data directory",
    sqlite3.SQLITE_NOTADB: "the file is no database; move it away or use another data directory",
}


def store_error(error: sqlite3.Error, path: str) -> StoreError:
    """Return the error that says what happened to the database at `path`, and the way out."""
    advice = _ADVICE.get(_code(error), "this is a defect; please report it")
    meant = StoreError(f"{path!r}: {error}: {advice}")
    meant.__cause__ = error
    return meant


def is_busy(error: Exception) -> bool:
    """Say whether another process kept the database locked for too long."""
    return _code(error) == sqlite3.SQLITE_BUSY


def _code(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE
