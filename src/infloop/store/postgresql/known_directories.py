"""The paths at which runs of this machine have worked in a real directory, not a link."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection

MOST_PATHS = 10_000
"""How many paths of a machine are kept; beyond that the oldest are deleted."""


@cache
def this_machine() -> str:
    """Return the name of this machine: its id if it has one, else its host name."""
    try:
        name = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    return name or os.uname().nodename


async def is_known(connection: Connection, path: str) -> bool:
    """Return whether a path was added."""
    found = await connection.execute(
        "SELECT 1 FROM place WHERE machine = %s AND path = %s", (this_machine(), os.fsencode(path))
    )
    return await found.fetchone() is not None


async def add(connection: Connection, path: str) -> None:
    """Add a path."""
    await connection.execute(
        "INSERT INTO place (machine, path) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (this_machine(), os.fsencode(path)),
    )
    await connection.execute(
        "DELETE FROM place WHERE machine = %(machine)s AND key < (SELECT key FROM place"
        " WHERE machine = %(machine)s ORDER BY key DESC OFFSET %(most)s LIMIT 1)",
        {"machine": this_machine(), "most": MOST_PATHS - 1},
    )
