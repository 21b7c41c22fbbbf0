"""The run queue on SQLite, and processes that are killed while they use it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infloop.errors import StoreError
from infloop.store.interfaces.queue import (
    KEPT_MS,
    Enqueued,
    QueuedRun,
    QueueFull,
)
from infloop.store.sqlite.store import DATABASE_FILE
from support.forking import forker
from support.stores import (
    NOW,
    store_in,
)
from support.thorough import amount


async def test_what_is_forgotten_leaves_no_row(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        for number in range(300):
            name = f"{number}"
            run = QueuedRun(name, f"run-{name}", "w", {}, "cid", NOW, idempotency_key=name)
            await store.queue.put(run, limit=1)
            await store.queue.remove(name)
        for number in range(3):
            late = QueuedRun(f"late-{number}", f"{number}", "w", {}, "cid", NOW + 2 * KEPT_MS)
            await store.queue.put(late, limit=9)
    with sqlite3.connect(tmp_path / DATABASE_FILE) as database:
        rows = database.execute("SELECT count(*) FROM queued").fetchone()
    database.close()
    assert rows == (3,)


async def test_how_many_wait_is_right_whatever_became_of_entries(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with store_in(tmp_path) as store:
        queue = store.queue

        async def act(number: int) -> None:
            name = f"{number}"
            run = QueuedRun(name, f"run-{name}", "w", {}, "cid", NOW, priority=number % 3)
            await queue.put(run, limit=1_000)
            for entry in await queue.take("me", chance.randint(0, 2)):
                match chance.randint(0, 3):
                    case 0:
                        await queue.requeue(entry.run.id, "me")
                    case 1:
                        await queue.hold_entry(entry.run.id, "me", "why")
                    case 2:
                        await queue.withdraw(entry.run.id)
            match chance.randint(0, 5):
                case 0:
                    await queue.remove(f"{chance.randint(0, number)}")
                case 1:
                    await queue.release_held("w", "why")
                case 2:
                    await queue.requeue_all("me")

        for number in range(120):
            await act(number)
            if number % 10 == 0:
                entries = await queue.entries()
                ahead = [each for each in entries if each.state == "waiting" and not each.held]
                last = QueuedRun(f"z{number}", f"run-z{number}", "w", {}, "cid", NOW, priority=-9)
                assert await queue.put(last, limit=len(entries)) == QueueFull(len(entries))
                added = await queue.put(last, limit=len(entries) + 1)
                assert isinstance(added, Enqueued)
                assert added.position == len(ahead) + 1
                await queue.withdraw(last.id)


async def test_many_who_add_do_not_hold_up_who_takes(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        runs = [QueuedRun(f"{n}", f"run-{n}", "w", {}, "cid", NOW) for n in range(40)]
        adding = [asyncio.create_task(store.queue.put(run, limit=100)) for run in runs]
        (entry,) = await asyncio.create_task(store.queue.take("me"))
        assert entry.run.id == "0"
        assert sum(task.done() for task in adding) < len(adding) // 2
        await asyncio.gather(*adding)
        assert await store.queue.count() == len(runs)


async def test_one_who_adds_wrongly_spoils_nothing_for_the_others(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        names = ["a", "b", "a", "c"]
        runs = [QueuedRun(name, f"run-{name}", "w", {}, "cid", NOW) for name in names]
        answers = await asyncio.gather(
            *(store.queue.put(run, limit=100) for run in runs), return_exceptions=True
        )
        assert [isinstance(answer, StoreError) for answer in answers] == [False, False, True, False]
        assert [entry.run.id for entry in await store.queue.entries()] == ["a", "b", "c"]


# -- kill -9 ---------------------------------------------------------------------------------------

KILLS = amount(10, thorough=60)


@dataclass
class Said:
    """What the killed processes said before they died."""

    tried: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    started: Counter[str] = field(default_factory=Counter)

    def hear(self, words: list[str]) -> None:
        match words:
            case ["adding", name]:
                self.tried.add(name)
            case ["added", name]:
                self.acknowledged.add(name)
            case ["started", name]:
                self.started[name] += 1


def kill_some(folder: Path, shard: int) -> Said:
    """Let processes work, one after the other, and kill them at random points."""
    chance, said, number = random.Random(shard), Said(), 1_000 * (shard + 1)
    with forker("queue_worker.py", folder) as children:
        while children.kills < KILLS // 2:
            number += 1
            children.run(number, chance.randint(1, 40), said.hear)
    return said


@pytest.mark.thorough
async def test_killed_at_random_points_every_acknowledged_entry_runs_exactly_once(
    tmp_path: Path,
) -> None:
    one, two = await asyncio.gather(
        asyncio.to_thread(kill_some, tmp_path, 0), asyncio.to_thread(kill_some, tmp_path, 1)
    )
    rest = Said()
    with forker("queue_worker.py", tmp_path) as children:
        assert await asyncio.to_thread(children.run, 0, None, rest.hear)
    tried = one.tried | two.tried
    acknowledged = one.acknowledged | two.acknowledged
    started = one.started + two.started + rest.started
    assert len(acknowledged) > KILLS
    assert set(started.values()) == {1}
    async with store_in(tmp_path) as store:
        assert await store.queue.count() == 0
        runs = {row.id for row in await store.run_log.runs(limit=100_000)}
        assert {f"run-{name}" for name in acknowledged} <= runs
        assert {f"run-{name}" for name in started} <= runs
        assert runs <= {f"run-{name}" for name in tried}
        for name in acknowledged:
            assert (await store.queue.entry(name)).state == "started"
