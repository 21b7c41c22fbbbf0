"""When nobody can reach the database, nobody dies of it.

A server that restarts, recovers after a crash or fails over, a network that is down, a machine that
sleeps with everything on it: afterwards all processes look as silent as if they had died. Live
processes are heard every second, so a time in which nobody at all was heard was an outage.

- A process that was not heard itself looks for that before it does anything else: if nobody was
  heard, it excuses everybody, and each has its whole timeout again from then on.
- A process that starts cannot tell an outage from the death of all others. It waits until somebody
  is heard, or until the others had time to come back. Who is dead after that is marked as dead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection

OUTAGE_MS = 2_500
"""In which time at least one of all processes is heard, unless there is an outage."""

_POLL_SECONDS = 0.1

_SILENCE: LiteralString = (
    "NOT EXISTS (SELECT 1 FROM instance AS one WHERE NOT one.closed AND greatest(one.beat_at,"  # noqa: S608
    f" one.held_at) > clock_timestamp() - interval '{OUTAGE_MS} milliseconds')"
)
_EXCUSE = f"UPDATE instance SET excused_at = clock_timestamp() WHERE NOT closed AND {_SILENCE}"  # noqa: S608
_ALL_SILENT = f"SELECT EXISTS (SELECT 1 FROM instance WHERE NOT closed) AND {_SILENCE}"  # noqa: S608


async def excuse_all(connection: Connection) -> None:
    """Give every process its whole timeout again, if nobody was heard."""
    await connection.execute(_EXCUSE.encode())


async def wait_for_others(connection: Connection, seconds: float) -> bool:
    """Wait until another process is heard, if there are any; return whether all stayed silent."""
    end = asyncio.get_running_loop().time() + seconds
    while await (await connection.execute(_ALL_SILENT.encode())).fetchone() == (True,):
        if asyncio.get_running_loop().time() >= end:
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False
