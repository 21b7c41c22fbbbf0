"""The store of a command that only reads: no event loop, no threads, no writing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from infloop.errors import StoreError
from infloop.store.opening import open_read_only
from infloop.store.sqlite.store import DATABASE_FILE
from support.stores import at_now, new_run, read_all, started, store_in


def at_once(reading: Coroutine[object, object, Any]) -> Any:
    """Run a coroutine that does not wait, without an event loop."""
    with pytest.raises(StopIteration) as end:
        reading.send(None)
    return end.value.value


async def _write(folder: Path) -> None:
    async with store_in(folder) as store:
        await store.run_log.create_run(new_run(), started(word="green"))


def test_it_reads_what_others_write_without_an_event_loop(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path))
    before = threading.active_count()
    store = open_read_only(tmp_path, at_now)
    assert [item.event.inputs for item in at_once(read_all(store.run_log))] == [{"word": "green"}]
    assert [row.id for row in at_once(store.run_log.runs())] == ["r1"]
    assert at_once(store.queue.entries()) == []
    assert at_once(store.liveness.instances()) == []
    assert threading.active_count() == before
    at_once(store.__aexit__())


def test_it_writes_nothing(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path))
    store = open_read_only(tmp_path, at_now)
    with pytest.raises(RuntimeError, match="only reads has tried to write"):
        at_once(store.run_log.create_run(new_run("r2"), started("r2")))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM run")

    readers: Any = store.run_log
    with pytest.raises(StoreError, match="readonly"):
        readers._readers.run(write).send(None)
    assert [row.id for row in at_once(store.run_log.runs())] == ["r1"]
    at_once(store.__aexit__())


def test_it_makes_a_database_that_is_missing_and_refuses_another_file(tmp_path: Path) -> None:
    store = open_read_only(tmp_path / "new", at_now)
    assert at_once(store.run_log.runs()) == []
    at_once(store.__aexit__())
    (tmp_path / DATABASE_FILE).write_bytes(b"this is not a database" * 100)
    with pytest.raises(StoreError, match="not a database; move it away"):
        open_read_only(tmp_path, at_now)
