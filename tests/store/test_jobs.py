"""Entries of the queue on PostgreSQL and their jobs of Procrastinate, which must agree."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from procrastinate import sql
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager

from infloop.errors import StoreError
from infloop.model.events import Recorded, RunFinished
from infloop.store.interfaces.liveness import LOST_AFTER_MS
from infloop.store.interfaces.queue import Enqueued, QueuedRun
from infloop.store.interfaces.store import Store
from infloop.store.postgresql.address import Address
from infloop.store.postgresql.connections import Database
from infloop.store.postgresql.jobs import MOST_BYTES, TransactionConnector, queue_name
from infloop.store.postgresql.jobs_schema import check_library
from infloop.store.postgresql.migrations import MIGRATIONS, migrate
from infloop.store.postgresql.store import open_postgresql_store
from infloop.store.postgresql.writer import LOCKS
from support.eventually import eventually_async
from support.postgresql import database_for, drop_databases, execute, running_server
from support.stores import NOW, FakeTime, new_run, start_child, started
from support.thorough import amount

BEFORE_JOBS = 11
"""The schema version of the last infloop without jobs."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    running_server()
    yield database_for(tmp_path)
    drop_databases()


def entry(name: str, **more: Any) -> QueuedRun:
    workflow = more.pop("workflow_id", "w")
    return QueuedRun(name, f"run-{name}", workflow, {"n": name}, "cid", NOW, **more)


async def put(store: Store, *names: str, **more: Any) -> None:
    for name in names:
        assert isinstance(await store.queue.put(entry(name, **more), limit=100_000), Enqueued)


async def take(store: Store, limit: int = 1, **more: Any) -> list[str]:
    async with asyncio.timeout(30):
        return [each.run.id for each in await store.queue.take("me", limit, **more)]


async def start(store: Store, name: str, *, ends: bool = True) -> None:
    run_id = f"run-{name}"
    end = Recorded(run_id, 2, NOW, "cid_1", RunFinished("succeeded"))
    first = started(run_id)
    await store.queue.start(name, new_run(run_id, owner="me"), first, [end] if ends else [])


def disagreements(folder: Path) -> list[tuple[object, ...]]:
    """Return entries and jobs that do not agree, as one moment shows them."""
    return execute(
        folder,
        """
        SELECT queued.id, queued.state, queued.held, job.id, job.status
        FROM (SELECT * FROM infloop.queued WHERE state IN ('waiting', 'taken')) AS queued
        FULL JOIN infloop.procrastinate_jobs AS job ON job.id = queued.job
        WHERE queued.id IS NULL OR job.id IS NULL
            OR job.args <> jsonb_build_object('entry', queued.id)
            OR job.queue_name <> queued.queue
            OR job.status::text <> CASE
                WHEN queued.state = 'waiting' AND NOT queued.held THEN 'todo' ELSE 'doing' END
        UNION ALL
        SELECT queued.id, queued.state, NULL, NULL, NULL FROM infloop.queued
        WHERE (state = 'started') <> EXISTS (SELECT 1 FROM infloop.run WHERE run.id = queued.run)
        """,
    )


def rows(folder: Path, table: str) -> int:
    ((number,),) = execute(folder, f"SELECT count(*) FROM infloop.{table}")
    assert isinstance(number, int)
    return number


# -- one transaction -------------------------------------------------------------------------------

BUSY_CHILD = """
import random
from infloop.model.events import Recorded, RunFinished
from infloop.store.interfaces.queue import QueuedRun
from support.stores import NOW, new_run, started

async def main():
    chance = random.Random(args[0])
    async with open_store(folder) as store:
        me, queue = await store.liveness.register(), store.queue

        async def add(number):
            for again in range(1_000):
                name = f"{args[0]}-{number}-{again}"
                run = QueuedRun(name, f"run-{name}", "w", {}, "c", NOW, max_concurrent=number % 2)
                await queue.put(run, limit=100_000)
                if again % 5 == 0:
                    await queue.remove(name)

        async def work():
            for _ in range(1_000):
                for entry in await queue.take(me.id, 3):
                    match chance.randrange(4):
                        case 0:
                            await queue.requeue(entry.run.id, me.id)
                        case 1:
                            await queue.hold_entry(entry.run.id, me.id, "no")
                        case _:
                            run_id = entry.run.run_id
                            end = Recorded(run_id, 2, NOW, "cid_1", RunFinished("succeeded"))
                            new = new_run(run_id, owner=me.id)
                            await queue.start(entry.run.id, new, started(run_id), [end])
                await queue.retry_held()
                print("worked", flush=True)

        await asyncio.gather(add(1), add(2), work(), work())

asyncio.run(main())
"""


@pytest.mark.thorough
async def test_an_entry_its_job_and_its_run_are_never_without_each_other_whoever_is_killed(
    database: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    for number in range(amount(2, thorough=25)):
        with start_child(BUSY_CHILD, "postgresql", tmp_path, f"{number}") as child:
            assert child.stdout is not None
            for _ in range(chance.randint(5, 25)):
                assert await asyncio.to_thread(child.stdout.readline) == "worked\n"
                assert disagreements(tmp_path) == []
            child.kill()
        assert disagreements(tmp_path) == []
    assert rows(tmp_path, "run") > 10


async def test_takers_pass_over_what_is_being_taken_and_wait_for_nobody(database: str) -> None:
    async with (
        await open_postgresql_store(database) as store,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as other,
    ):
        await put(store, "a", "b", "c")
        await other.execute("BEGIN; SET LOCAL search_path = infloop")
        await other.execute("SELECT procrastinate_fetch_job_v2(NULL, NULL)")
        await other.execute("SELECT pg_advisory_xact_lock(%s)", (LOCKS["queue"],))
        assert await take(store, 9) == ["b", "c"]
        await other.execute("ROLLBACK")
        assert await take(store) == ["a"]


async def test_a_limited_entry_at_the_head_holds_up_nobody(database: str) -> None:
    async with (
        await open_postgresql_store(database) as store,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as other,
    ):
        limited: dict[str, Any] = {"workflow_id": "one", "max_concurrent": 1, "priority": 9}
        await put(store, "full-1", "full-2", **limited)
        await put(store, *"abcd")
        assert await take(store) == ["full-1"]
        async with other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock(%s)", (LOCKS["queue"],))
            assert await take(store) == ["a"]  # no lock is needed to see that a workflow is full
            assert await take(store) == ["b"]
            await start(store, "full-1")
            assert await take(store) == ["c"]  # somebody may be counting: it is passed over, once
            waits = asyncio.create_task(take(store))
            done, _ = await asyncio.wait({waits}, timeout=0.3)
            assert not done
        assert await waits == ["full-2"]
        assert await take(store) == ["d"]


async def test_entries_of_one_workflow_with_different_limits_keep_each_their_own(
    database: str,
) -> None:
    async with await open_postgresql_store(database) as store:
        await put(store, "a", "b", max_concurrent=1)
        await put(store, "c", "d", "e", max_concurrent=3)
        assert await take(store, 9) == ["a", "c", "d"]
        for name in ("a", "c"):
            await start(store, name)
        assert await take(store, 9) == ["e"]
        for name in ("d", "e"):
            await start(store, name)
        assert await take(store, 9) == ["b"]


async def test_a_process_takes_only_what_it_is_told_to(database: str, tmp_path: Path) -> None:
    async with await open_postgresql_store(database) as store:
        await put(store, "a", "b", "c", "d")
        await put(store, "z", priority=5)
        assert await take(store, 9, only=[]) == []
        assert await take(store, 9, only=["d", "b", "z", "unknown"]) == ["z", "b", "d"]
        assert disagreements(tmp_path) == []
        assert await take(store, 9) == ["a", "c"]


NAMES: tuple[tuple[tuple[str, ...], str, int], ...] = (
    ((), "w", 0),
    ((), "w", 1),
    ((), "w", 2),
    ((), "w 1", 2),
    (("gpu",), "w", 0),
    (("gpu", "repo:web"), "w", 0),
    (("a" * (MOST_BYTES - 4),), "w", 0),
    (("a" * (MOST_BYTES - 3),), "w", 0),
    (("ü" * (MOST_BYTES - 10),), "w", 0),
    (("ü" * 3_000, "b"), "w", 0),
    ((), "w" * 5_000, 1),
    (('"', "'", "\\", "{}", "%s", "#", "\n"), "'; DROP TABLE run; --", 1),
)


async def test_every_label_and_workflow_makes_a_queue_that_the_server_takes(
    database: str, tmp_path: Path
) -> None:
    assert len({queue_name(*each) for each in NAMES}) == len(NAMES)
    assert queue_name(("b", "a"), "w", 0) == queue_name(("a", "b"), "v", 0) == '["a","b"]'
    async with await open_postgresql_store(database) as store:
        for number, (requires, workflow, most) in enumerate(NAMES):
            name, workflow_id = f"{number}", f"{workflow}"
            await put(store, name, requires=requires, workflow_id=workflow_id, max_concurrent=most)
        assert disagreements(tmp_path) == []
        assert await take(store, 99) == ["0", "1", "2", "3", "10"]
        for number, (requires, _, _) in enumerate(NAMES):
            assert await take(store, labels=requires) == ([f"{number}"] if requires else [])


# -- nothing piles up ------------------------------------------------------------------------------


async def test_jobs_events_and_workers_do_not_pile_up(database: str, tmp_path: Path) -> None:
    time = FakeTime("postgresql", tmp_path)
    async with await open_postgresql_store(database) as store:
        one, two = [await store.liveness.register() for _ in range(2)]
        assert rows(tmp_path, "procrastinate_workers") == 2
        await put(store, *map(str, range(8)))
        assert await store.queue.withdraw("7")
        assert await store.queue.remove("6")
        for name in await take(store, 5):
            await start(store, name)
        assert rows(tmp_path, "procrastinate_jobs") == 1
        for _ in range(20):
            assert await take(store) == ["5"]
            await store.queue.hold_entry("5", "me", "no")
            await store.queue.retry_held()
        assert rows(tmp_path, "procrastinate_events") < 6
        assert await take(store) == ["5"]
        assert await store.queue.withdraw("5")
        for table in ("jobs", "events", "periodic_defers"):
            assert rows(tmp_path, f"procrastinate_{table}") == 0
        await one.close()
        time.passes(LOST_AFTER_MS + 1)
        await store.liveness.sweep()
        assert await store.liveness.state(two.id) == "dead"
        assert rows(tmp_path, "procrastinate_workers") == 0


async def test_the_library_knows_whose_jobs_have_stalled(database: str, tmp_path: Path) -> None:
    async with await open_postgresql_store(database) as store:
        connection = await Database(Address(database)).connect()
        manager = JobManager(TransactionConnector(connection))

        async def stalled() -> list[object]:
            found = await manager.get_stalled_jobs(seconds_since_heartbeat=30)
            return [job.task_kwargs["entry"] for job in found]

        me = await store.liveness.register()
        await put(store, "a", "b")
        assert [each.run.id for each in await store.queue.take(me.id)] == ["a"]
        assert await stalled() == []
        execute(
            tmp_path,
            "UPDATE infloop.procrastinate_workers SET last_heartbeat = now() - interval '1 minute'",
        )
        assert await stalled() == ["a"]
        await me.heartbeat()
        assert await stalled() == []
        await me.close()
        assert await store.queue.requeue_all(me.id) == 1
        assert await stalled() == []
        assert await take(store, 9) == ["a", "b"]
        await connection.close()


# -- other versions --------------------------------------------------------------------------------


def put_before_jobs(folder: Path, *names: str, held: bool = False, **more: object) -> None:
    """Add entries as an infloop without jobs does."""
    for name in names:
        values = {"workflow": "'w'", "priority": 0, "requires": "'[]'", "max_concurrent": 0, **more}
        execute(
            folder,
            "INSERT INTO infloop.queued (id, run, correlation_id, cause, queued_at,"
            f" first_position, held, reason, body, {', '.join(values)}) SELECT '{name}',"
            f" 'run-{name}', 'cid', '{{}}', {NOW}, 1, {held}, '{'no' if held else ''}',"
            f" body, {', '.join(map(str, values.values()))} FROM infloop.example",
        )


@pytest.fixture
async def before_jobs(database: str, tmp_path: Path) -> str:
    """Return a database as the last infloop without jobs left it, with a body for its entries."""
    async with await open_postgresql_store(database) as store:
        await put(store, "a")
        ((body,),) = execute(tmp_path, "SELECT encode(body, 'hex') FROM infloop.queued")
    connection = await Database(Address(database)).connect()
    await connection.execute("DROP SCHEMA infloop CASCADE")
    await migrate(connection, "old", upto=BEFORE_JOBS)
    await connection.execute(
        f"CREATE TABLE example AS SELECT decode('{body}', 'hex') AS body".encode()
    )
    await connection.close()
    return database


async def test_what_waited_before_the_upgrade_is_handed_out_in_its_order(
    before_jobs: str, tmp_path: Path
) -> None:
    put_before_jobs(tmp_path, "a", "b")
    put_before_jobs(tmp_path, "z", priority=5)
    put_before_jobs(tmp_path, "gpu", requires="""'["gpu"]'""")
    put_before_jobs(tmp_path, "one", "two", max_concurrent=1, workflow="'limited'")
    put_before_jobs(tmp_path, "held", held=True)
    put_before_jobs(tmp_path, "taken")
    execute(tmp_path, "UPDATE infloop.queued SET state = 'taken', owner = 'x' WHERE id = 'taken'")
    async with await open_postgresql_store(before_jobs) as store:
        assert await store.queue.has_takeable()
        await put(store, "new")
        assert await take(store, 9) == ["z", "a", "b", "one", "new"]
        assert await take(store, 9, labels=["gpu"]) == ["gpu"]
        assert await store.queue.requeue_all("x") == 1
        await store.queue.retry_held()
        assert await take(store, 9) == ["held", "taken"]
        for name in ("z", "a", "b", "one", "new", "gpu", "held", "taken"):
            await start(store, name)
        assert await take(store, 9) == ["two"]
        assert disagreements(tmp_path) == []


async def test_processes_without_jobs_may_use_the_same_queue_meanwhile(
    before_jobs: str, tmp_path: Path
) -> None:
    def old(change: str, name: str) -> None:
        execute(tmp_path, f"UPDATE infloop.queued SET {change} WHERE id = '{name}'")

    execute(
        tmp_path,
        "INSERT INTO infloop.instance (id, pid, process_started, boot_id, host)"
        " VALUES ('old', 1, '', '', '')",
    )
    async with await open_postgresql_store(before_jobs) as store:
        await store.queue.retry_held()
        await put(store, "removed", "started", "requeued", "held", "tried", "released", "dead", "x")
        old("state = 'removed'", "removed")
        old("state = 'dropped'", "started")
        old("state = 'taken', owner = 'old'", "requeued")
        old("state = 'taken', owner = 'old'", "tried")
        old("held = true, reason = 'no'", "held")
        assert await take(store, 2) == ["released", "dead"]
        await store.queue.hold_entry("released", "me", "other")
        old("state = 'waiting', owner = ''", "requeued")
        old("held = false", "released")
        old("state = 'waiting', owner = ''", "dead")  # whose process an old one saw dying
        put_before_jobs(tmp_path, "added")
        assert await store.queue.requeue_all("old") == 1
        await store.queue.retry_held()
        taken = await take(store, 99)
        assert sorted(taken) == ["added", "dead", "held", "released", "requeued", "tried", "x"]
        old("state = 'removed'", "x")
        execute(tmp_path, "DELETE FROM infloop.instance")
        await store.queue.retry_held()  # once more after they have gone
        assert disagreements(tmp_path) == []


async def test_who_could_add_to_the_queue_still_can_after_the_upgrade(
    before_jobs: str, tmp_path: Path
) -> None:
    """Grants of before do not name the sequences that jobs are numbered with."""
    name = f"earlier_{tmp_path.name[-1]}"
    execute(tmp_path, f"DROP ROLE IF EXISTS {name}")
    for statement in (
        f"CREATE ROLE {name} LOGIN",
        f"GRANT USAGE ON SCHEMA infloop TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA infloop TO {name}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA infloop GRANT ALL ON TABLES TO {name}",
    ):
        execute(tmp_path, statement)
    await (await open_postgresql_store(before_jobs)).close()
    async with await open_postgresql_store(before_jobs.replace("tester@", f"{name}@")) as store:
        await put(store, "a")
        assert await take(store) == ["a"]
        await start(store, "a")
    execute(tmp_path, f"DROP OWNED BY {name}")
    execute(tmp_path, f"DROP ROLE {name}")


@pytest.mark.parametrize(
    "queries",
    [
        {**sql.queries, "fetch_job": "SELECT procrastinate_fetch_job_v3(%(queues)s)"},
        {**sql.queries, "defer_jobs": "SELECT %(jobs)s::procrastinate_job_to_defer_v2[]"},
        {name: query for name, query in sql.queries.items() if name != "retry_job"},
    ],
)
def test_a_library_that_needs_other_functions_is_refused_by_its_version(
    queries: Mapping[str, str],
) -> None:
    check_library()
    with pytest.raises(StoreError, match=r"procrastinate 3\.99 needs 'procrastinate_"):
        check_library(queries, "3.99")


# -- somebody else's jobs --------------------------------------------------------------------------


async def test_jobs_of_others_in_the_same_database_are_not_touched(
    before_jobs: str, tmp_path: Path
) -> None:
    theirs = (
        "SELECT array_agg(job ORDER BY job.id)::text FROM public.procrastinate_jobs AS job",
        "SELECT array_agg(event ORDER BY event.id)::text FROM public.procrastinate_events AS event",
        "SELECT array_agg(worker)::text FROM public.procrastinate_workers AS worker",
    )
    execute(tmp_path, SchemaManager.get_schema())
    execute(tmp_path, "SELECT procrastinate_register_worker_v1()")
    for queue in ("[]", '["gpu"]', "mail"):
        execute(
            tmp_path,
            "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW("
            f"'{queue}', 'send', 0, NULL, NULL, '{{\"entry\": \"a\"}}', NULL"
            ")]::procrastinate_job_to_defer_v1[])",
        )
    execute(tmp_path, "SELECT procrastinate_fetch_job_v2(ARRAY['mail'], 1)")
    before = [execute(tmp_path, each) for each in theirs]
    async with await open_postgresql_store(before_jobs) as store:
        me = await store.liveness.register()
        await put(store, "a", "b")
        assert await take(store, 9, labels=["gpu"]) == ["a", "b"]
        await start(store, "a")
        assert await store.queue.requeue_all("me") == 1
        await store.queue.retry_held()
        await me.heartbeat()
        assert await store.queue.remove("b")
        await me.close()
        await store.liveness.sweep()
        assert disagreements(tmp_path) == []
    assert [execute(tmp_path, each) for each in theirs] == before
    assert len(MIGRATIONS) > BEFORE_JOBS


async def test_a_new_entry_wakes_whoever_waits_with_its_commit(database: str) -> None:
    """Nothing but the transaction that adds it has to happen."""
    async with (
        await open_postgresql_store(database) as store,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as spy,
    ):
        await spy.execute("LISTEN procrastinate_any_queue_v1")
        await spy.execute("LISTEN infloop_all")
        await put(store, "a")
        await spy.execute("SELECT 1")
        heard = [each.channel async for each in spy.notifies(timeout=30, stop_after=1)]
        assert heard == ["procrastinate_any_queue_v1"]
        await eventually_async(store.queue.has_takeable)
