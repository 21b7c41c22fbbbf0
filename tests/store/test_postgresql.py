"""What only concerns PostgreSQL: its address, its schema, and a server that goes away."""

from __future__ import annotations

import asyncio
import logging
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from infloop.errors import Fenced, InfloopError, SettingsError, StoreError
from infloop.store import opening
from infloop.store.interfaces.changes import QUEUE, STOPS, run_subject
from infloop.store.interfaces.ledger import NewCall
from infloop.store.interfaces.liveness import LOST_AFTER_MS
from infloop.store.interfaces.queue import QueuedRun
from infloop.store.interfaces.store import Store
from infloop.store.postgresql.address import Address
from infloop.store.postgresql.changes import RUNS_CHANNEL
from infloop.store.postgresql.connections import Database
from infloop.store.postgresql.migrations import MIGRATIONS, migrate, schema_version
from infloop.store.postgresql.store import open_postgresql_store
from support.eventually import eventually_async
from support.postgresql import Server, database_for, drop_databases, execute, running_server
from support.stores import (
    NOW,
    FakeTime,
    at,
    finished,
    new_run,
    passed,
    read_all,
    settled,
    start_child,
    started,
)
from support.thorough import amount


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """Return the address of a database whose schema is ready."""
    running_server()
    yield database_for(tmp_path)
    drop_databases()


@pytest.fixture
def empty_database(database: str, tmp_path: Path) -> str:
    """Return the address of a database without a schema."""
    execute(tmp_path, "DROP SCHEMA infloop CASCADE")
    return database


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Return a server that a test may stop and start."""
    own = Server()
    yield own
    own.remove()


@pytest.fixture
def crashing(server: Server) -> Iterator[str]:
    """Return the address of an empty database of that server."""
    server.execute("CREATE DATABASE crashing")
    yield server.address("crashing")
    server.execute("DROP DATABASE crashing WITH (FORCE)")


# -- the address -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "mysql://user:hunter2@host/db",
        "sqlite:///x.db?password=hunter2",
        "user:hunter2@host/db",
        "host=localhost password=hunter2",
        "postgresql://user:hunter2@host:port/db?nonsense=1",
        "postgresql://user:hunter2@[::1/db",
        "postgresql://user:hunter2@/db?host=/nowhere/at/all",
        "postgresql://user:hunter2@127.0.0.1:1/db",
    ],
)
async def test_an_address_that_does_not_work_is_refused_without_its_password(
    tmp_path: Path, address: str
) -> None:
    with pytest.raises(InfloopError) as refused:
        await opening.open_store(tmp_path, lambda: NOW, address)
    assert isinstance(refused.value, SettingsError | StoreError)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    assert not [*tmp_path.iterdir()], "nothing else is opened instead"


def test_what_is_shown_of_an_address_has_no_password() -> None:
    address = Address("postgresql://ada:hunter2@db.example:6543/work?sslmode=verify-full")
    assert repr(address) == "Address('postgresql://ada@db.example:6543/work')"
    assert "hunter2" not in repr(vars(Database(address))["_address"])


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("postgresql://db.example/work", "require"),
        ("postgresql://10.0.0.7/work", "require"),
        ("postgresql://db.example/work?sslmode=verify-full", "verify-full"),
        ("postgresql://db.example/work?sslmode=disable", "disable"),
        ("postgresql://localhost/work", None),
        ("postgresql://127.0.0.1/work", None),
        ("postgresql:///work?host=/run/postgresql", None),
    ],
)
def test_a_connection_to_another_machine_is_encrypted_unless_the_address_says_otherwise(
    address: str, mode: str | None
) -> None:
    used = psycopg.conninfo.conninfo_to_dict(Address(address).conninfo(""))
    assert used.get("sslmode") == mode


# -- the schema ------------------------------------------------------------------------------------


async def test_an_empty_database_may_be_opened_by_many_at_once(empty_database: str) -> None:
    stores = await asyncio.gather(*(open_postgresql_store(empty_database) for _ in range(6)))
    for number, store in enumerate(stores):
        await store.run_log.create_run(new_run(f"r{number}"), started(f"r{number}"))
    assert await stores[0].run_log.count() == 6
    for store in stores:
        await store.close()


async def test_a_schema_of_any_earlier_version_is_brought_up_to_date(empty_database: str) -> None:
    database = Database(Address(empty_database))
    connection = await database.connect()
    for version in range(len(MIGRATIONS) + 1):
        await connection.execute("DROP SCHEMA IF EXISTS infloop CASCADE")
        await migrate(connection, "old", upto=version)
        assert await schema_version(connection) == version
        async with await open_postgresql_store(empty_database) as store:
            await settled(store.run_log, new_run(), at(2, finished(text="needle")))
            assert len(await store.run_log.search("needle")) == 1
        assert await schema_version(connection) == len(MIGRATIONS)
    await connection.close()


async def test_a_schema_of_a_newer_version_is_refused_by_number(
    database: str, tmp_path: Path
) -> None:
    execute(tmp_path, "UPDATE infloop.version SET number = 99")
    with pytest.raises(StoreError, match=r"newer infloop.*schema version 99"):
        await open_postgresql_store(database)


async def test_a_user_who_may_only_use_the_tables_is_enough_once_they_exist(
    database: str, tmp_path: Path
) -> None:
    name = f"limited_{tmp_path.name[-1]}"
    execute(tmp_path, f"DROP ROLE IF EXISTS {name}")
    execute(tmp_path, f"CREATE ROLE {name} LOGIN")
    execute(tmp_path, f"GRANT USAGE ON SCHEMA infloop TO {name}")
    tables = "ALL TABLES IN SCHEMA infloop"
    execute(tmp_path, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {name}")
    execute(tmp_path, f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA infloop TO {name}")
    async with await open_postgresql_store(database.replace("tester@", f"{name}@")) as store:
        me = await store.liveness.register()
        await settled(store.run_log, new_run(owner=me.id), at(2, finished(text="needle")))
        assert await store.liveness.state(me.id) == "alive"
        assert len(await store.run_log.search("needle")) == 1
        assert await store.run_log.prune("w", 0) == 1
        await store.queue.put(QueuedRun("q", "r2", "w", {}, "cid", NOW), limit=1)
        for _ in range(2):
            (entry,) = await store.queue.take(me.id)
            await store.queue.hold_entry(entry.run.id, me.id, "no")
            await store.queue.retry_held()
        await store.queue.take(me.id)
        await store.queue.start("q", new_run("r2", owner=me.id), started("r2"))
        await store.liveness.sweep()
        await me.close()
    execute(tmp_path, f"DROP OWNED BY {name}")
    execute(tmp_path, f"DROP ROLE {name}")


async def test_a_reader_cannot_write(database: str) -> None:
    connection = await Database(Address(database)).connect(read_only=True)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        await connection.execute("DELETE FROM run")
    await connection.close()


async def test_commits_wait_for_the_disk(database: str) -> None:
    connection = await Database(Address(database)).connect()
    cursor = await connection.execute("SHOW synchronous_commit")
    assert await cursor.fetchone() == ("on",)
    await connection.close()


# -- who is dead stays dead ------------------------------------------------------------------------

BEATING_CHILD = """
from infloop.errors import Fenced

async def main():
    async with open_store(folder) as store:
        me = await store.liveness.register()
        print(me.id, flush=True)
        try:
            while True:
                await me.heartbeat()
                await asyncio.sleep(0.02)
        except Fenced:
            again = await store.liveness.register()
            print("fenced", again.id, flush=True)
            sys.stdin.readline()

asyncio.run(main())
"""


async def test_who_was_silent_for_too_long_is_dead_and_does_not_come_back(
    database: str, tmp_path: Path
) -> None:
    time = FakeTime("postgresql", tmp_path)
    async with await open_postgresql_store(database) as store:
        with start_child(BEATING_CHILD, "postgresql", tmp_path) as child:
            assert child.stdout is not None
            frozen = (await asyncio.to_thread(child.stdout.readline)).strip()
            child.send_signal(signal.SIGSTOP)
            time.passes(LOST_AFTER_MS - 10_000)
            assert await store.liveness.state(frozen) == "frozen", "its lock is still held"
            time.passes(10_001)
            assert await store.liveness.state(frozen) == "dead"
            child.send_signal(signal.SIGCONT)
            word, again = (await asyncio.to_thread(child.stdout.readline)).split()
            assert word == "fenced"
            assert await store.liveness.state(frozen) == "dead"
            assert await store.liveness.state(again) == "alive"
            child.kill()


def end_sessions(folder: Path) -> None:
    execute(
        folder,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


async def test_a_process_whose_sessions_are_ended_goes_on_under_its_id(
    database: str, tmp_path: Path
) -> None:
    async with await open_postgresql_store(database) as store:
        me = await store.liveness.register()
        await store.run_log.create_run(new_run(owner=me.id), started())
        for seq in range(2, 5):
            end_sessions(tmp_path)
            await store.run_log.append("r1", 1, [at(seq, passed())])
            await me.heartbeat()
            assert await store.liveness.state(me.id) == "alive"
        assert [item.seq for item in await read_all(store.run_log)] == [1, 2, 3, 4]
        await me.close()


async def test_a_process_that_lost_its_session_too_long_ago_is_fenced(
    database: str, tmp_path: Path
) -> None:
    time = FakeTime("postgresql", tmp_path)
    async with await open_postgresql_store(database) as store:
        me = await store.liveness.register()
        time.passes(10_000)
        assert await store.liveness.state(me.id) == "alive", "its lock is held"
        await me.heartbeat()
        time.passes(10_000)
        end_sessions(tmp_path)
        with pytest.raises(Fenced, match="declared dead"):
            await me.heartbeat()
        assert await store.liveness.state(me.id) == "dead"


async def test_missed_notifications_count_as_a_change(database: str, tmp_path: Path) -> None:
    async with await open_postgresql_store(database) as store:
        seen = store.changes.version(QUEUE)
        end_sessions(tmp_path)
        async with asyncio.timeout(30):
            await store.changes.wait(QUEUE, seen, seconds=600)


async def test_nobody_is_woken_for_what_does_not_concern_it(database: str) -> None:
    """Events of a run reach who follows it; others, and who waits for the queue, sleep on."""
    mine, other = run_subject("r1"), run_subject("r2")
    async with (
        await open_postgresql_store(database) as store,
        await open_postgresql_store(database) as idle,
        await open_postgresql_store(database) as follower,
    ):
        for run_id in ("r1", "r2"):
            await store.run_log.create_run(new_run(run_id), started(run_id))
        unconcerned = -1
        while unconcerned != (unconcerned := follower.changes.version(other)):
            await follower.changes.wait(other, unconcerned, seconds=0.3)
        version = follower.changes.version(mine)
        queue, stops = idle.changes.version(QUEUE), idle.changes.version(STOPS)
        async with asyncio.timeout(30):
            await store.run_log.append("r1", 1, [at(2, passed())])
            await follower.changes.wait(mine, version, seconds=600)
        assert follower.changes.version(other) == unconcerned
        assert (idle.changes.version(QUEUE), idle.changes.version(STOPS)) == (queue, stops)


async def test_events_are_not_announced_while_nobody_follows(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as spy:
        await spy.execute(f"LISTEN {RUNS_CHANNEL}")
        await spy.execute("LISTEN here")
        async with await open_postgresql_store(database) as store:
            await store.run_log.create_run(new_run(), started())
            await store.run_log.append("r1", 1, [at(2, passed())])
        # What was unannounced is announced when the store is closed.
        await spy.execute("NOTIFY here")
        heard = [each.channel async for each in spy.notifies(timeout=30, stop_after=1)]
        assert heard == ["here"]


# -- a server that crashes -------------------------------------------------------------------------


class Work:
    """Tasks that use a store until they are told to stop, and what was acknowledged to them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stopping = False
        self.appended: dict[str, int] = {}
        self.reserved: list[int] = []
        self.queued: list[str] = []

    @property
    def count(self) -> int:
        return sum(self.appended.values()) + len(self.reserved) + len(self.queued)

    async def append(self, run_id: str) -> None:
        await self.store.run_log.create_run(new_run(run_id), started(run_id))
        seq = 1
        while not self.stopping:
            items = [at(seq + n, passed(f"{seq + n}"), run_id) for n in (1, 2, 3)]
            await self.store.run_log.append(run_id, 1, items)
            seq += 3
            self.appended[run_id] = seq

    async def reserve(self) -> None:
        while not self.stopping:
            call = NewCall("r", "w", "a", 1, "fake", "", "agent", "me", NOW)
            made = await self.store.ledger.reserve(call)
            assert isinstance(made, int)
            self.reserved.append(made)

    async def queue(self) -> None:
        while not self.stopping:
            name = f"q{len(self.queued)}"
            run = QueuedRun(name, f"run-{name}", "w", {}, "c", NOW)
            await self.store.queue.put(run, limit=1_000_000)
            self.queued.append(name)


@pytest.mark.thorough
async def test_a_crash_of_the_server_loses_nothing_acknowledged_and_repeats_nothing(
    server: Server, crashing: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "infloop.store")
    async with await open_postgresql_store(crashing) as store:
        me = await store.liveness.register()
        work = Work(store)
        runs = [f"r{number}" for number in range(3)]
        async with asyncio.TaskGroup() as tasks:
            for run_id in runs:
                tasks.create_task(work.append(run_id))
            tasks.create_task(work.reserve())
            tasks.create_task(work.queue())
            for _ in range(amount(3, thorough=30)):
                await eventually_async(_more_than(work, work.count + 60))
                await asyncio.to_thread(server.stop, "immediate")
                server.start()  # in this thread: see `Server`
                await me.heartbeat()
                assert await store.liveness.state(me.id) == "alive", "nobody dies of a restart"
            await eventually_async(_more_than(work, work.count + 60))
            work.stopping = True
        for run_id in runs:
            seqs = [item.seq for item in await read_all(store.run_log, run_id)]
            assert seqs == list(range(1, work.appended[run_id] + 1))
        assert (await store.ledger.total()).calls == len(work.reserved) == len({*work.reserved})
        assert await store.queue.count() == len(work.queued)
    said = [record.getMessage() for record in caplog.records if "is gone" in record.getMessage()]
    assert 1 <= len(said) <= amount(3, thorough=30)
    assert all("tester@" in message for message in said)


def _more_than(work: Work, count: int) -> Callable[[], bool]:
    return lambda: work.count > count


async def test_who_waits_for_a_server_that_stays_away_is_told(
    server: Server, crashing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infloop.store.postgresql.connections.PATIENCE_SECONDS", 0.5)
    store = await open_postgresql_store(crashing)
    await store.run_log.create_run(new_run(), started())
    await asyncio.to_thread(server.stop, "immediate")
    try:
        with pytest.raises(StoreError, match="check that PostgreSQL is running"):
            await store.run_log.append("r1", 1, [at(2, passed())])
        with pytest.raises(StoreError, match="check that PostgreSQL is running"):
            await store.run_log.run("r1")
    finally:
        server.start()
    await store.run_log.append("r1", 1, [at(2, passed())])
    assert [item.seq for item in await read_all(store.run_log)] == [1, 2]
    await store.close()
