"""Translates errors of PostgreSQL into errors with advice."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from infloop.errors import StoreError

_ADVICE: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.DiskFull, "the disk of the database is full; free some space, then resume the run"),
    (
        errors.InsufficientPrivilege,
        "this user may not do that; see `docs/scaling.md` for what it needs",
    ),
    (
        errors.InvalidAuthorizationSpecification,
        "check the user and its password; it may be in the address or in libpq's password file",
    ),
    (errors.InvalidCatalogName, "create the database, or correct its name in the address"),
    (errors.TooManyConnections, "raise max_connections, or start fewer processes"),
    (errors.ReadOnlySqlTransaction, "the database is read-only; connect to the primary server"),
    (errors.OperationalError, "check that PostgreSQL is running and that the address is right"),
)

_ENDING = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
)


def store_error(error: psycopg.Error, shown: str) -> StoreError:
    """Return an error that names the database and says what to do."""
    advice = next(
        (text for kind, text in _ADVICE if isinstance(error, kind)),
        "this is a defect; please report it",
    )
    explained = StoreError(f"{shown}: {' '.join(str(error).split())}: {advice}")
    explained.__cause__ = error
    return explained


def is_lost(error: BaseException, connection: psycopg.AsyncConnection[Any]) -> bool:
    """Return whether a connection ended; what was being done may or may not be committed."""
    return isinstance(error, _ENDING) or (
        isinstance(error, psycopg.OperationalError) and connection.closed
    )
