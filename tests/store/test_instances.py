"""Processes that own runs: alive, frozen or dead, by evidence."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.model.events import RunFinished
from infloop.store.instances import Instances, derive_status, is_held, remove_if_free
from infloop.store.sqlite.journal import open_journal
from support.eventually import eventually_async
from support.journals import at, every_journal, new_run, started

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


OWNING_CHILD = """
import asyncio, sys, time
from pathlib import Path
from infloop.store.instances import Instances
from infloop.store.sqlite.journal import open_journal

async def main():
    data = Path(sys.argv[1])
    async with await open_journal(data) as journal:
        now = lambda: time.time_ns() // 1_000_000
        instance = await Instances(journal, data, now).register()
        print(instance.id, flush=True)
        while True:
            await instance.beat()
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNING_CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()


async def test_a_killed_process_is_dead_and_a_stopped_one_frozen(
    tmp_path: Path, child: tuple[subprocess.Popen[str], str]
) -> None:
    process, instance_id = child
    async with await open_journal(tmp_path) as journal:
        row = await journal.instance(instance_id)
        assert row is not None
        clock = Clock()
        clock.now = row.beat_at
        instances = Instances(journal, tmp_path, clock)
        assert row.pid == process.pid
        assert row.host == os.uname().nodename
        assert await instances.liveness(instance_id) == "alive"

        await _next_beat(journal, instance_id, row.beat_at)

        process.send_signal(signal.SIGSTOP)
        await eventually_async(lambda: _state(process.pid) == "T")
        last = await _beat(journal, instance_id)
        clock.now = last + 15_000
        assert await instances.liveness(instance_id) == "alive"
        clock.now += 1
        assert await instances.liveness(instance_id) == "frozen"

        process.send_signal(signal.SIGCONT)
        clock.now = await _next_beat(journal, instance_id, last)
        assert await instances.liveness(instance_id) == "alive"

        process.kill()
        process.wait(30)
        assert await instances.liveness(instance_id) == "dead"


async def _beat(journal: Any, instance_id: str) -> int:
    row = await journal.instance(instance_id)
    assert row is not None
    return int(row.beat_at)


async def _next_beat(journal: Any, instance_id: str, before: int) -> int:
    async def another() -> int | None:
        beat = await _beat(journal, instance_id)
        return beat if beat != before else None

    return await eventually_async(another)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@every_journal
async def test_a_process_is_alive_until_it_says_goodbye(opening: Any, tmp_path: Path) -> None:
    clock = Clock()
    async with await opening(tmp_path) as journal:
        instances = Instances(journal, tmp_path, clock)
        me, other = await instances.register(), await instances.register()
        assert me.id != other.id
        clock.now += 14_000
        await me.beat()
        clock.now += 14_000
        assert await instances.liveness(me.id) == "alive"
        assert await instances.liveness(other.id) == "frozen"
        await me.close()
        assert await instances.liveness(me.id) == "dead"
        assert await journal.instance(me.id) is None
        assert await instances.liveness("i-unknown") == "dead"
        await other.close()
        assert list((tmp_path / "instances").iterdir()) == []


@every_journal
async def test_a_lock_is_judged_by_its_holder_and_not_by_its_name(
    opening: Any, tmp_path: Path
) -> None:
    async with await opening(tmp_path) as journal:
        instances = Instances(journal, tmp_path, Clock())
        me = await instances.register()
        path = tmp_path / "instances" / f"{me.id}.lock"
        left_behind = tmp_path / "instances" / "i-dead.lock"
        left_behind.write_text("")
        assert await instances.liveness("i-dead") == "dead"
        assert await instances.liveness(me.id) == "alive"

        # The name is used again by a living process while somebody still has the old file open.
        with left_behind.open() as old:
            path.rename(left_behind)
            fcntl.flock(old, fcntl.LOCK_SH | fcntl.LOCK_NB)
            assert await instances.liveness("i-dead") == "alive"
            assert not remove_if_free(left_behind)
        assert left_behind.exists()
        left_behind.rename(path)
        await me.close()


@every_journal
async def test_probing_a_dead_owner_never_makes_it_look_alive(opening: Any, tmp_path: Path) -> None:
    async with await opening(tmp_path) as journal:
        instances = Instances(journal, tmp_path, Clock())
        path = tmp_path / "instances" / "i-dead.lock"
        path.parent.mkdir()
        path.write_text("")
        with path.open() as prober:
            fcntl.flock(prober, fcntl.LOCK_SH | fcntl.LOCK_NB)
            assert not is_held(path)
            assert await instances.liveness("i-dead") == "dead"


@every_journal
async def test_sweeping_removes_the_dead_but_not_the_word_of_those_with_unsettled_runs(
    opening: Any, tmp_path: Path
) -> None:
    clock = Clock()
    async with await opening(tmp_path) as journal:
        instances = Instances(journal, tmp_path, clock)
        me, idle, owner = [await instances.register() for _ in range(3)]
        await journal.create_run(new_run("r1", owner=owner.id), started())
        idle._lock.release()
        owner._lock.release()
        for gone in (idle, owner):
            (tmp_path / "instances" / f"{gone.id}.lock").write_text("")

        await instances.sweep()
        assert [path.stem for path in (tmp_path / "instances").iterdir()] == [me.id]
        assert {row.id for row in await journal.instances()} == {me.id, owner.id}
        assert await instances.liveness(owner.id) == "dead"

        await journal.append("r1", 1, [at(2, RunFinished("failed"))])
        await instances.sweep()
        assert {row.id for row in await journal.instances()} == {me.id}
        await me.close()


async def test_lock_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    async with await open_journal(tmp_path / "data") as journal:
        before = os.umask(0)
        try:
            me = await Instances(journal, tmp_path / "data", Clock()).register()
        finally:
            os.umask(before)
        (path,) = (tmp_path / "data" / "instances").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await me.close()


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
