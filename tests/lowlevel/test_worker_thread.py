"""A thread that runs functions for an event loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from infloop.lowlevel.worker_thread import WorkerThread


async def test_functions_run_one_after_the_other_in_one_other_thread() -> None:
    worker, seen = WorkerThread("worker"), list[tuple[int, str]]()

    def note(number: int) -> int:
        seen.append((number, threading.current_thread().name))
        return number

    found = await asyncio.gather(*(worker.run(partial(note, number)) for number in range(20)))
    worker.close()
    assert found == list(range(20))
    assert seen == [(number, "worker") for number in range(20)]


async def test_what_a_function_raises_is_raised_to_its_caller_and_the_thread_goes_on() -> None:
    worker = WorkerThread("worker")

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await worker.run(fail)
    assert await worker.run(lambda: "still here") == "still here"
    worker.close()


async def test_a_function_whose_caller_is_cancelled_runs_to_its_end() -> None:
    worker, go, seen = WorkerThread("worker"), threading.Event(), list[str]()

    def wait() -> None:
        go.wait(10)
        seen.append("ran")

    waiting = asyncio.create_task(worker.run(wait))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    await worker.run(lambda: None)
    worker.close()
    assert seen == ["ran"]
