"""The paths at which runs have worked in a real directory, not a link."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

MOST_PATHS = 10_000
"""How many paths are kept; beyond that the oldest are deleted."""


def is_known(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether a path was added."""
    found = connection.execute("SELECT 1 FROM place WHERE path = ?", (os.fsencode(path),))
    return found.fetchone() is not None


def add(connection: sqlite3.Connection, path: str) -> None:
    """Add a path."""
    connection.execute("INSERT OR IGNORE INTO place (path) VALUES (?)", (os.fsencode(path),))
    connection.execute(
        "DELETE FROM place WHERE key <= (SELECT max(key) FROM place) - ?", (MOST_PATHS,)
    )
