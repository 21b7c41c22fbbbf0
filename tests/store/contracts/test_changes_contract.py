"""The contract of every change notification."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from infloop.model.events import RunFinished
from infloop.store.interfaces.changes import QUEUE, RUNS, STOPS, run_subject
from infloop.store.interfaces.queue import QueuedRun
from infloop.store.interfaces.store import Store
from support.eventually import eventually_async
from support.stores import (
    NOW,
    OpenStore,
    at,
    new_run,
    passed,
    started,
)

Act: TypeAlias = Callable[[Store], Awaitable[object]]


async def test_a_follower_in_another_process_sees_that_something_was_committed(
    open_store: OpenStore, tmp_path: Path
) -> None:
    subject = run_subject("r1")
    async with open_store(tmp_path) as store, open_store(tmp_path) as follower:
        before = follower.changes.version(subject)
        await store.run_log.create_run(new_run(), started())
        await eventually_async(lambda: follower.changes.version(subject) != before)
        seen, own = follower.changes.version(subject), store.changes.version(subject)
        await store.run_log.append("r1", 1, [at(2, passed())])
        await eventually_async(lambda: follower.changes.version(subject) != seen)
        assert store.changes.version(subject) != own
        assert (await follower.run_log.events("r1", 1)) == [at(2, passed())]


async def _put(store: Store) -> None:
    run = QueuedRun("q1", "run-q1", "w", {}, "cid_1", NOW, max_concurrent=1)
    await store.queue.put(run, limit=10)


async def _give_back(store: Store) -> None:
    (entry,) = await store.queue.take("me")
    await store.queue.requeue(entry.run.id, "me")


async def _retry(store: Store) -> None:
    (entry,) = await store.queue.take("me")
    await store.queue.hold_entry(entry.run.id, "me", "no")
    await store.queue.retry_held()


async def _release(store: Store) -> None:
    (entry,) = await store.queue.take("me")
    await store.queue.hold_entry(entry.run.id, "me", "no")
    await store.queue.release_held("w", "no")


async def _recover(store: Store) -> None:
    await store.queue.take("me")
    await store.queue.requeue_all("me")


async def _take_and_add(store: Store) -> None:
    await store.queue.take("me")
    run = QueuedRun("q2", "run-q2", "w", {}, "cid_1", NOW, max_concurrent=1)
    await store.queue.put(run, limit=10)


async def _start_and_end(store: Store) -> None:
    """Start a run that has ended when it is stored."""
    end = at(2, RunFinished("succeeded"), "run-q1")
    await store.queue.start("q1", new_run("run-q1"), started("run-q1"), [end])


async def _begin(store: Store) -> None:
    await store.run_log.create_run(new_run(), started())


async def _go_on(store: Store) -> None:
    await store.run_log.append("r1", 1, [at(2, passed())])


async def _end(store: Store) -> None:
    await store.run_log.append("r1", 1, [at(2, RunFinished("succeeded"))])


async def _end_with_much(store: Store) -> None:
    finish = at(2, RunFinished("succeeded"))
    await store.run_log.append("r1", 1, [finish], scope={"text": "long" * 20_000})


async def _stop(store: Store) -> None:
    await store.liveness.request_stop("r1", "enough", NOW)


ACTS: tuple[tuple[str, tuple[Act, ...], Act], ...] = (
    (QUEUE, (), _put),
    (QUEUE, (_put,), _give_back),
    (QUEUE, (_put,), _retry),
    (QUEUE, (_put,), _release),
    (QUEUE, (_put,), _recover),
    (QUEUE, (_put, _take_and_add), _start_and_end),
    (QUEUE, (_begin, _put), _end),
    (QUEUE, (_begin, _put), _end_with_much),
    (STOPS, (_begin,), _stop),
    (RUNS, (), _begin),
    (RUNS, (_begin,), _go_on),
    (run_subject("r1"), (_begin,), _go_on),
    (run_subject("r1"), (_begin,), _end),
)


@pytest.mark.parametrize(("subject", "before", "act"), ACTS)
async def test_who_waits_is_woken_by_a_commit_of_another_process(
    open_store: OpenStore, tmp_path: Path, subject: str, before: tuple[Act, ...], act: Act
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as follower:
        for each in before:
            await each(store)
        # What happened so far, and that it follows now, is behind it when it waits.
        seen = await _settled(follower, subject)
        waiting = asyncio.create_task(follower.changes.wait(subject, seen, seconds=600))
        await asyncio.sleep(0)
        await act(store)
        async with asyncio.timeout(30):
            await waiting
        assert follower.changes.version(subject) != seen


async def _settled(store: Store, subject: str) -> int:
    """Return a version after nothing has changed for a while."""
    seen = -1
    while seen != (seen := store.changes.version(subject)):
        await store.changes.wait(subject, seen, seconds=0.3)
    return seen


async def test_what_happens_while_somebody_begins_to_follow_is_not_missed(
    open_store: OpenStore, tmp_path: Path
) -> None:
    subject = run_subject("r1")
    async with open_store(tmp_path) as store, open_store(tmp_path) as follower:
        await store.run_log.create_run(new_run(), started())
        found = 0
        seq = 1
        async with asyncio.timeout(60):
            for _ in range(20):
                version = follower.changes.version(subject)
                found = (await follower.run_log.run("r1")).last_seq
                seq += 1
                await store.run_log.append("r1", 1, [at(seq, passed())])
                while found < seq:
                    await follower.changes.wait(subject, version, seconds=600)
                    version = follower.changes.version(subject)
                    found = (await follower.run_log.run("r1")).last_seq
        assert found == seq


async def test_who_waits_for_a_version_that_has_passed_goes_on_at_once(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as follower:
        seen = follower.changes.version(QUEUE)
        await _put(store)
        async with asyncio.timeout(30):
            await follower.changes.wait(QUEUE, seen, seconds=600)


async def test_a_wait_ends_when_its_time_is_up(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        seen = store.changes.version(QUEUE)
        async with asyncio.timeout(30):
            await store.changes.wait(QUEUE, seen, seconds=0.01)
        assert store.changes.version(QUEUE) == seen
