"""Times in which nobody can reach PostgreSQL, and processes that stop in the middle of work."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from infloop.store.interfaces.queue import Enqueued, QueuedRun
from infloop.store.interfaces.store import Store
from infloop.store.postgresql.address import Address
from infloop.store.postgresql.connections import Database
from infloop.store.postgresql.errors import is_lost
from infloop.store.postgresql.liveness import LOCK_CLASS
from infloop.store.postgresql.outages import OUTAGE_MS
from infloop.store.postgresql.store import open_postgresql_store
from infloop.store.postgresql.writer import LOCKS
from support.eventually import eventually_async
from support.postgresql import database_for, drop_databases, execute, running_server
from support.stores import NOW, FakeTime, start_child

HOUR_MS = 3_600_000

CHILD = """
from infloop.errors import Fenced

async def main():
    async with open_store(folder) as store:
        me = await store.liveness.register()
        print(me.id, flush=True)
        while True:
            try:
                await me.heartbeat()
            except Fenced:
                print("fenced", flush=True)
                return
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    running_server()
    yield database_for(tmp_path)
    drop_databases()


class Sleepers:
    """Processes that send heartbeats, and that fall asleep and wake up as their machine does."""

    def __init__(self, folder: Path, processes: list[subprocess.Popen[str]]) -> None:
        self.folder = folder
        self.processes = processes
        self.ids: list[str] = []

    async def register(self) -> None:
        for each in self.processes:
            assert each.stdout is not None
            self.ids.append((await asyncio.to_thread(each.stdout.readline)).strip())

    async def sleep(self) -> None:
        """Return when they have been asleep for so long that it is an outage."""
        for each in self.processes:
            each.send_signal(signal.SIGSTOP)
        names = ", ".join(f"'{each}'" for each in self.ids)
        silent = (
            f"SELECT count(*) FROM infloop.instance WHERE id IN ({names}) AND greatest(beat_at,"
            f" held_at) < clock_timestamp() - interval '{OUTAGE_MS} ms'"
        )
        await eventually_async(lambda: execute(self.folder, silent) == [(len(self.ids),)])

    def wake(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGCONT)


@asynccontextmanager
async def sleepers(folder: Path, count: int = 2) -> AsyncIterator[Sleepers]:
    made = Sleepers(folder, [start_child(CHILD, "postgresql", folder) for _ in range(count)])
    try:
        await made.register()
        yield made
    finally:
        for each in made.processes:
            with each:
                each.kill()


async def state_is(store: Store, instance_id: str, *expected: str) -> bool:
    return await store.liveness.state(instance_id) in expected


async def test_when_nobody_could_be_heard_everybody_has_the_whole_time_again(
    database: str, tmp_path: Path
) -> None:
    time = FakeTime("postgresql", tmp_path)
    async with await open_postgresql_store(database) as store, sleepers(tmp_path) as both:
        first, second = both.ids
        await both.sleep()
        time.passes(HOUR_MS)
        assert set((await store.liveness.states(both.ids)).values()) == {"dead"}
        both.wake(0)
        await eventually_async(lambda: state_is(store, first, "alive"))
        assert await state_is(store, second, "alive"), "it had no chance to be heard"
        time.passes(10_000)
        assert await state_is(store, second, "alive")
        both.wake(1)
        await eventually_async(lambda: beat_later(store, second))
        assert await state_is(store, second, "alive")


async def beat_later(store: Store, instance_id: str) -> bool:
    row = await store.liveness.instance(instance_id)
    return row is not None and row.heartbeat_at > row.started_at


async def test_the_silent_one_among_others_that_were_heard_gets_no_more_time(
    database: str, tmp_path: Path
) -> None:
    async with await open_postgresql_store(database) as store, sleepers(tmp_path, 1) as one:
        me = await store.liveness.register()
        await one.sleep()
        execute(
            tmp_path,
            "UPDATE infloop.instance SET beat_at = beat_at - interval '1 hour',"
            f" held_at = held_at - interval '1 hour' WHERE id = '{one.ids[0]}'",
        )
        one.wake(0)
        told = one.processes[0].stdout
        assert told is not None
        assert (await asyncio.to_thread(told.readline)).strip() == "fenced"
        await me.heartbeat()
        await me.close()


async def test_who_starts_after_an_outage_lets_the_others_come_back_first(
    database: str, tmp_path: Path
) -> None:
    time = FakeTime("postgresql", tmp_path)
    async with await open_postgresql_store(database) as store, sleepers(tmp_path) as both:
        await both.sleep()
        time.passes(HOUR_MS)
        registering = asyncio.create_task(store.liveness.register())
        both.wake(1)
        me = await registering
        states = await store.liveness.states([*both.ids, me.id])
        assert [*states.values()] == ["alive", "alive", "alive"]
        await me.close()


async def test_who_starts_after_the_others_died_finds_them_dead(
    database: str, tmp_path: Path
) -> None:
    async with await open_postgresql_store(database) as store, sleepers(tmp_path, 1) as one:
        await one.sleep()
        one.processes[0].kill()
        me = await store.liveness.register()
        assert await state_is(store, one.ids[0], "dead")
        again = await store.liveness.register()  # has nobody to wait for
        await again.close()
        await me.close()


async def test_a_process_may_choose_after_how_long_it_is_dead(
    database: str, tmp_path: Path
) -> None:
    async with (
        await open_postgresql_store(database) as patient,
        await open_postgresql_store(database, lost_after_ms=6_000) as hasty,
    ):
        long, short = await patient.liveness.register(), await hasty.liveness.register()
        assert (long.heartbeat_seconds, short.heartbeat_seconds) == (5, 1)
        FakeTime("postgresql", tmp_path).passes(7_000)
        for judge in (patient, hasty):
            assert await judge.liveness.states([long.id, short.id]) == {
                long.id: "alive",
                short.id: "dead",
            }
        await long.close()


# -- sessions of processes that stopped ------------------------------------------------------------


async def test_who_stops_in_a_transaction_does_not_keep_its_locks(database: str) -> None:
    stopped = await Database(Address(database)).connect()
    await stopped.execute("BEGIN")
    await stopped.execute("SELECT pg_advisory_xact_lock(%s)", (LOCKS["queue"],))
    async with await open_postgresql_store(database) as store, asyncio.timeout(30):
        put = await store.queue.put(QueuedRun("q", "r", "w", {}, "c", NOW), limit=10)
        assert isinstance(put, Enqueued)
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout) as ended:
        await stopped.execute("SELECT 1")
    assert is_lost(ended.value, stopped), "what it did is repeated"
    await stopped.close()


async def test_a_lock_that_an_earlier_session_still_holds_is_taken_from_it(
    database: str, tmp_path: Path
) -> None:
    async with await open_postgresql_store(database) as store:
        me = await store.liveness.register()
        # The server does not notice that the machine's connection is gone: the lock stays held.
        held = await Database(Address(database)).connect()
        key = "(SELECT key FROM instance)"
        holder = f"SELECT pid FROM pg_locks WHERE classid = {LOCK_CLASS} AND granted"
        taking = asyncio.create_task(
            held.execute(f"SELECT pg_advisory_lock({LOCK_CLASS}, {key})".encode())
        )
        waits = f"SELECT 1 FROM pg_locks WHERE classid = {LOCK_CLASS} AND NOT granted"
        await eventually_async(lambda: execute(tmp_path, waits))
        before = execute(tmp_path, holder)
        execute(tmp_path, f"SELECT pg_terminate_backend(pid) FROM ({holder}) AS it")
        await taking
        await me.heartbeat()
        await eventually_async(lambda: held_by_another(tmp_path, holder, held, before))
        assert await state_is(store, me.id, "alive")
        await held.close()
        await me.close()


def held_by_another(
    folder: Path,
    holder: str,
    stale: psycopg.AsyncConnection[tuple[object, ...]],
    before: list[tuple[object, ...]],
) -> bool:
    now = execute(folder, holder)
    return bool(now) and now not in ([(stale.info.backend_pid,)], before)
