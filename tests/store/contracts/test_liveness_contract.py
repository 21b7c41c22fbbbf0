"""The contract of every liveness: processes that own runs are alive, frozen or dead."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.errors import Fenced, NotFound
from infloop.model.events import RunFinished
from infloop.store.interfaces.liveness import FROZEN_AFTER_MS, derive_status
from infloop.store.interfaces.store import Store
from support.eventually import eventually_async
from support.stores import FakeTime, OpenStore, at, new_run, start_child, started

if TYPE_CHECKING:
    from collections.abc import Iterator


OWNING_CHILD = """
import time
from support.stores import new_run, started

async def main():
    async with open_store(folder, clock=lambda: time.time_ns() // 1_000_000) as store:
        idle, owner = await store.liveness.register(), await store.liveness.register()
        await store.run_log.create_run(new_run("r1", owner=owner.id), started())
        print(owner.id, idle.id, flush=True)
        while True:
            await owner.heartbeat()
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


@dataclass(frozen=True)
class Child:
    """A process that owns run `r1`, and has an instance that owns nothing."""

    process: subprocess.Popen[str]
    owner: str
    idle: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def clock(implementation: str, tmp_path: Path) -> FakeTime:
    return FakeTime(implementation, tmp_path)


@pytest.fixture
def child(implementation: str, tmp_path: Path) -> Iterator[Child]:
    with start_child(OWNING_CHILD, implementation, tmp_path) as process:
        assert process.stdout is not None
        owner, idle = process.stdout.readline().split()
        yield Child(process, owner, idle)
        process.kill()


async def test_a_killed_process_is_dead_and_a_stopped_one_frozen(
    open_store: OpenStore, tmp_path: Path, clock: FakeTime, child: Child
) -> None:
    async with open_store(tmp_path, clock=clock) as store:
        row = await store.liveness.instance(child.owner)
        assert row is not None
        assert row.pid == child.process.pid
        assert row.host == os.uname().nodename
        clock.now = row.heartbeat_at
        assert await store.liveness.state(child.owner) == "alive"
        await next_heartbeat(store, child.owner, row.heartbeat_at)

        child.process.send_signal(signal.SIGSTOP)
        await eventually_async(lambda: process_state(child.process.pid) == "T")
        last = await heartbeat(store, child.owner)
        clock.now = last
        clock.passes(FROZEN_AFTER_MS // 2)
        assert await store.liveness.state(child.owner) == "alive"
        clock.passes(FROZEN_AFTER_MS // 2 + 1)
        assert await store.liveness.state(child.owner) == "frozen"

        frozen = await heartbeat(store, child.owner)
        child.process.send_signal(signal.SIGCONT)
        clock.now = await next_heartbeat(store, child.owner, frozen)
        assert await store.liveness.state(child.owner) == "alive"

        child.kill()
        clock.passes(6_000)
        await eventually_dead(store, child.owner)


async def eventually_dead(store: Store, instance_id: str) -> None:
    async def is_dead() -> bool:
        return await store.liveness.state(instance_id) == "dead"

    await eventually_async(is_dead)


async def test_many_processes_are_looked_up_at_once(
    open_store: OpenStore, tmp_path: Path, clock: FakeTime
) -> None:
    async with open_store(tmp_path, clock=clock) as store:
        frozen, closed = [await store.liveness.register() for _ in "ab"]
        await closed.close()
        clock.passes(FROZEN_AFTER_MS + 1)
        alive = await store.liveness.register()
        asked = [alive.id, frozen.id, closed.id, "unknown", alive.id]
        assert await store.liveness.states(asked) == {
            alive.id: "alive",
            frozen.id: "frozen",
            closed.id: "dead",
            "unknown": "dead",
        }
        assert await store.liveness.states([]) == {}


async def heartbeat(store: Store, instance_id: str) -> int:
    row = await store.liveness.instance(instance_id)
    assert row is not None
    return row.heartbeat_at


async def next_heartbeat(store: Store, instance_id: str, before: int) -> int:
    async def another() -> int | None:
        beat = await heartbeat(store, instance_id)
        return beat if beat != before else None

    return await eventually_async(another)


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_process_is_alive_until_it_says_goodbye(
    open_store: OpenStore, tmp_path: Path, clock: FakeTime
) -> None:
    async with open_store(tmp_path, clock=clock) as store:
        me, other = await store.liveness.register(), await store.liveness.register()
        assert me.id != other.id
        clock.passes(14_000)
        await me.heartbeat()
        clock.passes(14_000)
        assert await store.liveness.state(me.id) == "alive"
        assert await store.liveness.state(other.id) == "frozen"
        await me.close()
        assert await store.liveness.state(me.id) == "dead"
        assert await store.liveness.instance(me.id) is None
        assert await store.liveness.state("i-unknown") == "dead"
        await other.close()
        assert await store.liveness.instances() == []


async def test_a_process_says_what_it_is_and_what_it_takes(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        plain = await store.liveness.register()
        worker = await store.liveness.register("worker", labels=["gpu", "ü"], capacity=3)
        rows = {row.id: row for row in await other.liveness.instances()}
        assert rows == {plain.id: plain.row, worker.id: worker.row}
        assert (plain.row.kind, plain.row.labels, plain.row.capacity) == ("run", (), 0)
        assert (worker.row.kind, worker.row.labels) == ("worker", ("gpu", "ü"))
        assert await other.liveness.instance(worker.id) == worker.row
        await worker.close()
        await plain.close()


async def test_a_process_that_was_forgotten_learns_it_and_registers_anew(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        me = await store.liveness.register("worker", labels=["gpu"], capacity=2)
        before = me.id
        await me.close()  # as after a sweep by those who took it for dead
        with pytest.raises(Fenced):
            await me.heartbeat()
        again = await store.liveness.register("worker", labels=["gpu"], capacity=2)
        old = again.id
        await again.renew()
        assert len({before, old, again.id}) == 3
        assert await other.liveness.states([old, again.id]) == {old: "dead", again.id: "alive"}
        assert (again.row.kind, again.row.labels, again.row.capacity) == ("worker", ("gpu",), 2)
        await again.heartbeat()
        await again.close()


async def test_sweeping_forgets_dead_processes_but_not_the_owners_of_unsettled_runs(
    open_store: OpenStore, tmp_path: Path, clock: FakeTime, child: Child
) -> None:
    async with open_store(tmp_path, clock=clock) as store:
        me = await store.liveness.register()
        await store.liveness.sweep()
        assert await known(store) == {me.id, child.owner, child.idle}

        child.kill()
        clock.passes(6_000)
        await eventually_dead(store, child.owner)
        await eventually_dead(store, child.idle)
        await store.liveness.sweep()
        assert await known(store) == {me.id, child.owner}
        assert await store.liveness.state(child.owner) == "dead"

        await store.run_log.append("r1", 1, [at(2, RunFinished("failed"))])
        await store.liveness.sweep()
        assert await known(store) == {me.id}
        await me.close()


async def known(store: Store) -> set[str]:
    return {row.id for row in await store.liveness.instances()}


@pytest.mark.parametrize(
    ("stored", "owner", "shown"),
    [
        ("running", "alive", "running"),
        ("running", "frozen", "stalled"),
        ("running", "dead", "interrupted"),
        ("succeeded", "dead", "succeeded"),
        ("failed", "frozen", "failed"),
        ("cancelled", "dead", "cancelled"),
    ],
)
def test_a_status_is_derived_from_evidence(stored: Any, owner: Any, shown: str) -> None:
    assert derive_status(stored, owner) == shown


async def test_a_stop_request_reaches_the_owner_and_ends_with_the_run(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        await store.run_log.create_run(new_run("r1", owner="i-1"), started("r1"))
        await store.run_log.create_run(new_run("r2", owner="i-2"), started("r2"))
        assert await store.liveness.stop_requests("i-1") == []
        await other.liveness.request_stop("r1", "tired \ud800", 77)
        (request,) = await store.liveness.stop_requests("i-1")
        assert (request.run_id, request.reason, request.time) == ("r1", "tired ?", 77)
        assert await store.liveness.stop_requests("i-2") == []
        await store.run_log.append("r1", 1, [at(2, RunFinished("cancelled"))])
        await store.run_log.take_over("r1", "i-1", force=True)
        assert await store.liveness.stop_requests("i-1") == []
        with pytest.raises(NotFound):
            await other.liveness.request_stop("no such run", "", 1)
