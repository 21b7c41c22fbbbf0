"""Locks on directories: one process at a time."""

import asyncio
from pathlib import Path

import pytest

from infloop.errors import StoreError
from infloop.lowlevel.directory_lock import hold_directory, lock_directory, try_lock_directory


def test_a_locked_directory_is_refused_with_what_it_is_locked_for(tmp_path: Path) -> None:
    with (
        lock_directory(tmp_path, 1, "testing"),
        pytest.raises(StoreError, match=r"another process has been testing in .* for 0\.01 s"),
        lock_directory(tmp_path, 0.01, "testing"),
    ):
        pass
    with lock_directory(tmp_path, 0, "testing"):
        assert list(tmp_path.iterdir()) == []


def test_trying_says_whether_it_is_locked(tmp_path: Path) -> None:
    with try_lock_directory(tmp_path) as first, try_lock_directory(tmp_path) as second:
        assert (first, second) == (True, False)


async def test_a_waiting_task_gets_the_lock_when_it_is_free(tmp_path: Path) -> None:
    order = []

    async def second() -> None:
        async with hold_directory(tmp_path):
            order.append("second")

    async with hold_directory(tmp_path):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_shared_locks_exclude_only_exclusive_ones(tmp_path: Path) -> None:
    async with hold_directory(tmp_path, shared=True), hold_directory(tmp_path, shared=True):
        with pytest.raises(StoreError, match="has been in use for 0 s"):
            async with hold_directory(tmp_path, timeout_s=0):
                pass
    async with hold_directory(tmp_path, timeout_s=0):
        pass


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none' cannot be opened: No such file"):
        async with hold_directory(tmp_path / "none"):
            pass
