"""Forks processes that add to the run queue and take from it until they die; see test_queue.py.

A child lets wait again what dead processes took, then adds entries and makes runs of them, in a
random order; child 0 only takes, until nothing is left. It says when it adds an entry, when that is
acknowledged, each run that exists, and `done` at the end (see forking).
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from infloop.model.events import Recorded, RunStarted
from infloop.store.interfaces.queue import QueuedRun, QueueEntry, RunQueue, requeue_from_dead_owners
from infloop.store.interfaces.run_log import NewRun, definition_hash
from infloop.store.opening import open_store
from support.forking import fork_for_each_line, say

DEFINITION = b'{"id":"w"}'
LIMIT = 30
ACTIONS = 60


def now() -> int:
    return time.time_ns() // 1_000_000


async def add(queue: RunQueue, name: str, priority: int) -> None:
    say(f"adding {name}")
    run = QueuedRun(name, f"run-{name}", "w", {"n": name}, "cid", now(), priority=priority)
    answer = await queue.put(run, limit=LIMIT)
    if hasattr(answer, "position"):
        say(f"added {name}")


async def start(queue: RunQueue, owner: str, entry: QueueEntry) -> None:
    run = entry.run
    event = RunStarted("w", "W", definition_hash(DEFINITION), run.inputs, "/")
    new = NewRun(run.run_id, "w", "W", DEFINITION, owner, now(), run.correlation_id)
    await queue.start(run.id, new, Recorded(run.run_id, 1, now(), "cid", event))
    say(f"started {run.id}")


async def act(queue: RunQueue, owner: str, chance: random.Random, name: str) -> None:
    if chance.random() < 0.5:
        await add(queue, name, chance.randint(0, 2))
        return
    entries = await queue.take(owner)
    if not entries:
        return
    (entry,) = entries
    if chance.random() < 0.1:
        await queue.requeue(entry.run.id, owner)
    else:
        await start(queue, owner, entry)


async def work(folder: Path, number: int) -> None:
    chance = random.Random(number)
    async with await open_store(folder, now) as store:
        instance = await store.liveness.register()
        await requeue_from_dead_owners(store.queue, store.liveness)
        if number == 0:
            while entries := await store.queue.take(instance.id):
                await start(store.queue, instance.id, entries[0])
        for first in range(0, ACTIONS if number else 0, 3):
            async with asyncio.TaskGroup() as tasks:
                for each in range(first, first + 3):
                    action = act(store.queue, instance.id, chance, f"{number}-{each}")
                    tasks.create_task(action)
        await instance.close()
    say("done")


if __name__ == "__main__":
    fork_for_each_line(work)
