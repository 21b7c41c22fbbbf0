"""The contract of every change notification."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.eventually import eventually_async
from support.stores import (
    OpenStore,
    at,
    new_run,
    passed,
    started,
)


async def test_a_follower_in_another_process_sees_that_something_was_committed(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as follower:
        before = follower.changes.version()
        await store.run_log.create_run(new_run(), started())
        await eventually_async(lambda: follower.changes.version() != before)
        seen, own = follower.changes.version(), store.changes.version()
        assert (follower.changes.version(), store.changes.version()) == (seen, own)
        await store.run_log.append("r1", 1, [at(2, passed())])
        await eventually_async(lambda: follower.changes.version() != seen)
        assert store.changes.version() != own
        assert (await follower.run_log.events("r1", 1)) == [at(2, passed())]


async def test_who_waits_is_woken_by_a_commit_of_another_process(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as follower:
        seen = follower.changes.version()
        waiting = asyncio.create_task(follower.changes.wait(seen, seconds=600))
        await asyncio.sleep(0)
        assert not waiting.done()
        await store.run_log.create_run(new_run(), started())
        async with asyncio.timeout(30):
            await waiting
        assert follower.changes.version() != seen


async def test_who_waits_for_a_version_that_has_passed_goes_on_at_once(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as follower:
        seen = follower.changes.version()
        await store.run_log.create_run(new_run(), started())
        async with asyncio.timeout(30):
            await follower.changes.wait(seen, seconds=600)


async def test_a_wait_ends_when_its_time_is_up(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        seen = store.changes.version()
        async with asyncio.timeout(30):
            await store.changes.wait(seen, seconds=0.01)
        assert store.changes.version() == seen
