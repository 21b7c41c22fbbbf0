"""The run queue on SQLite, and processes that are killed while they use it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infloop.store.interfaces.queue import (
    KEPT_MS,
    QueuedRun,
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
