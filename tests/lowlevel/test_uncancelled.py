"""Work that finishes although its task is cancelled."""

import asyncio
from collections.abc import Callable

import pytest

from infloop.lowlevel.uncancelled import run_uncancelled, wait_uncancelled


async def cancelled_twice(task: asyncio.Task[object], finish: Callable[[], None]) -> None:
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    finish()
    await asyncio.wait([task])


async def test_a_result_is_returned() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 3

    assert await run_uncancelled(work()) == 3


async def test_work_finishes_before_the_cancellation_is_raised() -> None:
    go, finished = asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        finished.append(True)

    task: asyncio.Task[object] = asyncio.create_task(run_uncancelled(work()))
    await cancelled_twice(task, go.set)
    assert task.cancelled()
    assert finished


async def test_an_error_of_the_work_is_raised_instead_of_the_cancellation() -> None:
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise ValueError("broken")

    task: asyncio.Task[object] = asyncio.create_task(run_uncancelled(work()))
    await cancelled_twice(task, go.set)
    with pytest.raises(ValueError, match="broken"):
        task.result()


async def test_waiting_says_whether_the_task_was_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    task: asyncio.Task[object] = asyncio.create_task(wait_uncancelled(future))
    await cancelled_twice(task, lambda: future.set_result(None))
    assert task.result() is True
    assert await wait_uncancelled(future) is False
