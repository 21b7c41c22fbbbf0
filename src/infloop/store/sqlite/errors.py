"""Translates SQLite errors into errors with advice."""

from __future__ import annotations

import sqlite3

from infloop.errors import StoreError

_PRIMARY_CODE = 0xFF

_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then resume the run",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; check it and its free space",
    sqlite3.SQLITE_BUSY: "another process locked the database for too long; try again",
    sqlite3.SQLITE_READONLY: "the database is read-only here; check its owner and mode",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened; check that its directory is writable",
    sqlite3.SQLITE_CORRUPT: "the database is damaged; restore a copy or use another data directory",
    sqlite3.SQLITE_NOTADB: "the file is not a database; move it away or use another data directory",
}


def store_error(error: sqlite3.Error, path: str) -> StoreError:
    """Return an error that names the database at `path` and says what to do."""
    advice = _ADVICE.get(_code(error), "this is a defect; please report it")
    explained = StoreError(f"{path!r}: {error}: {advice}")
    explained.__cause__ = error
    return explained


def is_busy(error: Exception) -> bool:
    """Return whether another process has locked the database."""
    return _code(error) == sqlite3.SQLITE_BUSY


def _code(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE
