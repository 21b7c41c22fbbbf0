"""What only concerns SQLite: the database file, its schema, its log and its size."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import sqlite3
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from infloop.errors import NotFound, StoreError
from infloop.model.events import (
    Event,
    Output,
    RunFinished,
)
from infloop.store.sqlite.blobs import read_page
from infloop.store.sqlite.database import open_for_reading, open_for_writing
from infloop.store.sqlite.migrations import MIGRATIONS, migrate, schema_version
from infloop.store.sqlite.pruning import delete_runs, prunable_runs
from infloop.store.sqlite.run_log import SqliteRunLog
from infloop.store.sqlite.store import DATABASE_FILE
from support.stores import (
    OpenStore,
    at,
    blob_bytes,
    finished,
    new_run,
    passed,
    read_all,
    said,
    settled,
    started,
    store_in,
)

if TYPE_CHECKING:
    pass


async def test_many_small_deltas_take_few_bytes_of_disk(
    open_store: OpenStore, tmp_path: Path
) -> None:
    deltas = [at(seq, said(f"token{seq % 50} ")) for seq in range(2, 20_002)]
    async with store_in(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        for start in range(0, len(deltas), 500):
            store.run_log.append("r1", 1, deltas[start : start + 500])
        await store.run_log.flush()
        assert (await read_all(store.run_log))[1:] == deltas
    plain = sum(len(delta.event.text) for delta in deltas if isinstance(delta.event, Output))
    assert (tmp_path / DATABASE_FILE).stat().st_size < 2 * plain


async def test_identical_large_texts_of_all_runs_are_stored_once(tmp_path: Path) -> None:
    noise = os.urandom(100_000).hex()
    async with store_in(tmp_path) as store:
        for run_id in ("r1", "r2"):
            await store.run_log.create_run(new_run(run_id), started(run_id))
            await store.run_log.append(run_id, 1, [at(2, finished(stdout=noise), run_id)])
            finish = at(3, RunFinished("succeeded"), run_id)
            await store.run_log.append(run_id, 1, [finish], scope={"agent-1": {"stdout": noise}})
        assert 0 < blob_bytes(tmp_path) <= len(noise)
        assert (await store.run_log.scope("r2")) == {"agent-1": {"stdout": noise}}


async def test_a_blob_is_read_by_its_hash(tmp_path: Path) -> None:
    text = "é" * 200_000
    name = hashlib.sha256(text.encode()).hexdigest()
    async with store_in(tmp_path) as store:
        await store.run_log.create_run(new_run(), started())
        await store.run_log.append("r1", 1, [at(2, finished(stdout=text))])
    connection = open_for_reading(tmp_path / DATABASE_FILE)
    assert read_page(connection, name, 199_990, 100) == ("é" * 10, 199_990, 200_000)
    assert read_page(connection, name, 65_535, 2).text == "éé"
    with pytest.raises(NotFound):
        read_page(connection, "0" * 64, 0, 1)
    connection.close()


def test_a_full_disk_fails_the_append_with_advice_and_later_ones_work(tmp_path: Path) -> None:
    async def main() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        async with store_in(tmp_path) as store:
            await store.run_log.create_run(new_run(), started())
            log = tmp_path / f"{DATABASE_FILE}-wal"
            resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8192, hard))
            try:
                with pytest.raises(StoreError, match=r"journal.db.*disk.*space"):
                    await store.run_log.append(
                        "r1", 1, [at(2, finished(noise=os.urandom(2_000_000).hex()))]
                    )
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert await read_all(store.run_log) == [started()]
            with pytest.raises(StoreError, match="space"):
                await store.run_log.append("r1", 1, [at(3, passed())])
            await store.run_log.append("r1", 1, [at(2, passed())])
            assert len(await read_all(store.run_log)) == 2

    asyncio.run(main())


# -- the database file -----------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_files_are_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    async def modes(data: Path) -> dict[str, int]:
        async with store_in(data) as store:
            await store.run_log.create_run(new_run(), started())
            return {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()}

    before = os.umask(mask)
    try:
        found = asyncio.run(modes(tmp_path / "deep" / "data"))
    finally:
        os.umask(before)
    assert found == {f"{DATABASE_FILE}{end}": 0o600 for end in ("", "-wal", "-shm")}
    for directory in (tmp_path / "deep", tmp_path / "deep" / "data"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_a_loose_database_file_is_tightened_and_the_users_directory_left_alone(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    async with store_in(tmp_path):
        pass
    (tmp_path / DATABASE_FILE).chmod(0o666)
    async with store_in(tmp_path):
        assert stat.S_IMODE((tmp_path / DATABASE_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_the_database_is_set_up_to_be_durable_and_to_shrink(tmp_path: Path) -> None:
    connection = open_for_writing(tmp_path / DATABASE_FILE, "FULL")
    names = ("journal_mode", "synchronous", "auto_vacuum", "foreign_keys", "secure_delete")
    found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
    connection.close()
    assert found == {
        "journal_mode": "wal", "synchronous": 2, "auto_vacuum": 2, "foreign_keys": 1,
        "secure_delete": 2,
    }  # fmt: skip


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_for_writing(tmp_path / DATABASE_FILE, "FULL").close()
    connection = open_for_reading(tmp_path / DATABASE_FILE)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM run")
    connection.close()


async def test_infloop_itself_opens_it_so_that_a_commit_survives_a_power_failure(
    tmp_path: Path,
) -> None:
    async with store_in(tmp_path) as store:
        assert isinstance(store.run_log, SqliteRunLog)
        read = store.run_log._writer.submit(lambda it: it.execute("PRAGMA synchronous").fetchone())
        assert await read == (2,)


async def test_a_run_that_goes_on_again_is_not_pruned(tmp_path: Path) -> None:
    """It may be resumed after it was chosen to be deleted, by another process."""
    async with store_in(tmp_path) as store:
        for run_id in ("r1", "r2"):
            await settled(store.run_log, new_run(run_id, started_at=len(run_id)))
        ours = open_for_writing(tmp_path / DATABASE_FILE, "FULL")
        doomed = prunable_runs(ours, "w", 0)
        assert sorted(doomed) == ["r1", "r2"]
        await store.run_log.take_over("r1", "another", expect_dead="me")
        assert delete_runs(ours, doomed) == 1
        ours.close()
        assert [row.id for row in await store.run_log.runs()] == ["r1"]
        assert len(await read_all(store.run_log)) == 2


WITH_SEARCH = 2
WITH_ROW_IDS = 6


def _events_as_before_row_ids(connection: sqlite3.Connection) -> list[Event | Output]:
    events = [started().event, finished(stdout="done")]
    for seq, event in enumerate(events, 1):
        connection.execute(
            "INSERT INTO stretch VALUES (1, ?, ?, 1, 0, 0, 'events', 'c', NULL, ?)",
            (seq, seq, b"\0" + msgspec.json.encode([(seq, 5, event)])),
        )
    return events


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
async def test_a_database_of_any_earlier_version_is_brought_up_to_date(
    tmp_path: Path, version: int
) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)
    migrate(connection, "old", upto=version)
    assert schema_version(connection) == version
    if version:
        connection.execute("INSERT INTO definition VALUES ('h', x'00')")
        connection.execute(
            "INSERT INTO run (id, workflow_id, workflow_name, definition, correlation_id, cause,"
            " owner, epoch, status, started_at, last_seq, events, steps, output_bytes)"
            " VALUES ('old', 'w', 'W', 'h', 'c', '{}', 'o', 1, 'succeeded', 1, 0, 0, 0, 0)"
        )
    kept = _events_as_before_row_ids(connection) if 0 < version < WITH_ROW_IDS else []
    if version >= WITH_SEARCH:
        for body in ("a haystack with straw", "straw"):
            connection.execute(
                "INSERT INTO document (run, path, kind, body) VALUES (1, ?, 'output', ?)",
                (body, body),
            )
    connection.close()
    async with store_in(tmp_path) as store:
        if version >= WITH_SEARCH:
            (hit,) = await store.run_log.search("straw")
            assert (hit.run.id, hit.path, hit.matches) == ("old", "straw", 2)
        assert await store.run_log.count() == (1 if version else 0)
        if version:
            assert [item.event for item in await store.run_log.events("old")] == kept
            assert await store.run_log.prune("w", 0) == 1
        await settled(store.run_log, new_run(), at(2, finished(stdout="needle")))
        (hit,) = await store.run_log.search("needle")
        assert hit.run.id == "r1"
    opened = open_for_writing(tmp_path / DATABASE_FILE, "FULL")
    assert schema_version(opened) == len(MIGRATIONS)
    opened.close()


async def test_a_database_of_a_newer_version_is_refused_by_number(tmp_path: Path) -> None:
    async with store_in(tmp_path):
        pass
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    with connection:
        connection.execute("UPDATE schema SET version = 99")
    connection.close()
    with pytest.raises(StoreError, match="schema version 99"):
        async with store_in(tmp_path):
            pass


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATABASE_FILE).write_bytes(b"this is not a database" * 100)
    with pytest.raises(StoreError, match="not a database; move it away"):
        async with store_in(tmp_path):
            pass
    assert (tmp_path / DATABASE_FILE).read_bytes().startswith(b"this is not")


async def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreError, match="check the data directory"):
        async with store_in(tmp_path / "data"):
            pass
