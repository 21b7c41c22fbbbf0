"""The paths that were directories themselves when a run worked there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

MOST_PLACES = 10_000
"""How many are known; of more, the oldest are forgotten."""


def was_real(connection: sqlite3.Connection, path: str) -> bool:
    """Say whether a path is known."""
    found = connection.execute("SELECT 1 FROM place WHERE path = ?", (os.fsencode(path),))
    return found.fetchone() is not None


def note_real(connection: sqlite3.Connection, path: str) -> None:
    """Make a path known."""
    connection.execute("INSERT OR IGNORE INTO place (path) VALUES (?)", (os.fsencode(path),))
    connection.execute(
        "DELETE FROM place WHERE key <= (SELECT max(key) FROM place) - ?", (MOST_PLACES,)
    )
