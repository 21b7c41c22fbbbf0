"""Room ahead in the write-ahead log."""

from __future__ import annotations

import shutil
import sqlite3
from typing import TYPE_CHECKING

from infloop.store.sqlite.headroom import AHEAD, Headroom

if TYPE_CHECKING:
    from pathlib import Path


def open_database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS item (number INTEGER PRIMARY KEY, body TEXT)")
    return connection


def add(connection: sqlite3.Connection, headroom: Headroom, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO item VALUES (?, ?)", (number, "x" * 500))
    headroom.extend_log_if_full()
    connection.execute("COMMIT")


def test_commits_do_not_lengthen_the_log_while_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    connection = open_database(path)
    headroom = Headroom(str(path), 4 * AHEAD)
    add(connection, headroom, 1)
    length = (tmp_path / "a.db-wal").stat().st_size
    for number in range(2, 100):
        add(connection, headroom, number)
    assert length >= AHEAD
    assert (tmp_path / "a.db-wal").stat().st_size == length
    connection.close()


def test_a_log_with_room_ahead_is_read_to_its_last_commit_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    connection = open_database(path)
    headroom = Headroom(str(path), 4 * AHEAD)
    for number in range(100):
        add(connection, headroom, number)
    left = tmp_path / "left"
    left.mkdir()
    for name in ("a.db", "a.db-wal"):  # what a killed process leaves on the disk
        shutil.copy(tmp_path / name, left / name)
    connection.close()

    found = open_database(left / "a.db")
    assert found.execute("SELECT count(*), max(number) FROM item").fetchone() == (100, 99)
    assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found.close()


def test_a_log_of_full_length_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    connection = open_database(path)
    headroom = Headroom(str(path), 0)
    for number in range(20):
        add(connection, headroom, number)
    assert (tmp_path / "a.db-wal").stat().st_size < AHEAD
    connection.close()
