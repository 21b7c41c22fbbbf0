"""Opens connections to the database, and opens them again after they were lost."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg.adapt import Dumper

from infloop.errors import StoreError
from infloop.store.postgresql.errors import store_error

if TYPE_CHECKING:
    from infloop.store.postgresql.address import Address

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

SCHEMA = "infloop"

PATIENCE_SECONDS = 60.0
"""How long a lost connection is tried to be opened again before what waits for it fails."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

# A small query must not wait for a compiler, and what it finds must be in our schema. The locks of
# a process that is frozen or cut off in the middle of a transaction must not stop all others for
# long, so the server ends such a session.
_SESSION = (
    f"-c search_path={SCHEMA} -c jit=off -c idle_in_transaction_session_timeout=5s"
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
    " -c tcp_user_timeout=10s"
)
_READ_ONLY = (
    "-c default_transaction_read_only=on -c default_transaction_isolation=repeatable\\ read"
)
# Signs of life and notifications need not survive a crash of the server.
_UNSYNCED = "-c synchronous_commit=off"


class Unreachable(StoreError):
    """The database could not be reached for `PATIENCE_SECONDS`."""


_log = logging.getLogger("infloop.store")


class _Text(Dumper):
    """Any text: what PostgreSQL cannot store (lone surrogates, NUL) becomes a question mark."""

    def dump(self, obj: str) -> bytes:
        data = obj.encode(errors="replace")
        return data.replace(b"\0", b"?") if b"\0" in data else data


class Database:
    """Opens connections to one database; the log says once when it is gone and when it is back."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._gone_since: float | None = None

    @property
    def shown(self) -> str:
        """The address without its password."""
        return self._address.shown

    async def connect(self, *, read_only: bool = False, synced: bool = True) -> Connection:
        """Return a new connection, or raise what is wrong with advice."""
        try:
            return await self._connect(read_only=read_only, synced=synced)
        except psycopg.Error as error:
            raise store_error(error, self.shown) from error

    async def reconnect(self, *, read_only: bool = False, synced: bool = True) -> Connection:
        """Return a new connection; try with growing pauses, up to `PATIENCE_SECONDS` after it left.

        Raises `Unreachable` after that.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                connection = await self._connect(read_only=read_only, synced=synced)
            except psycopg.OperationalError as error:
                if time.monotonic() > self._note_gone(error) + PATIENCE_SECONDS:
                    raise Unreachable(str(store_error(error, self.shown))) from error
            except psycopg.Error as error:
                raise store_error(error, self.shown) from error
            else:
                self._note_back()
                return connection
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _connect(self, *, read_only: bool, synced: bool) -> Connection:
        options = [_SESSION, *([_READ_ONLY] if read_only else []), *([] if synced else [_UNSYNCED])]
        connection = await psycopg.AsyncConnection.connect(
            self._address.conninfo(" ".join(options)), autocommit=True
        )
        connection.adapters.register_dumper(str, _Text)
        return connection

    def _note_gone(self, error: psycopg.Error) -> float:
        """Return since when the database is gone."""
        if self._gone_since is None:
            self._gone_since = time.monotonic()
            _log.warning(
                "the database %s is gone; trying to reach it again: %s",
                self.shown,
                str(error).strip(),
            )
        return self._gone_since

    def _note_back(self) -> None:
        if self._gone_since is not None:
            seconds = time.monotonic() - self._gone_since
            self._gone_since = None
            _log.warning("the database %s is back after %.1f s", self.shown, seconds)


async def close_quietly(connection: Connection | None) -> None:
    """Close a connection that may be broken."""
    if connection is not None:
        try:
            await connection.close()
        except psycopg.Error:
            return


def closed(shown: str) -> StoreError:
    """Return the error for work after the store was closed."""
    return StoreError(f"the database {shown} is closed")
