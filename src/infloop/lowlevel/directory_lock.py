"""Locks on directories: one process at a time.

The directory itself is locked, so no file is written into it. The kernel releases the lock when the
process ends, however it ends.
"""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from infloop.errors import StoreError
from infloop.lowlevel.lock_file import try_lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

TIMEOUT_S = 120.0
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def try_lock_directory(directory: Path) -> Iterator[bool]:
    """Lock `directory` if no other process has it locked; yield whether it is locked."""
    descriptor = os.open(directory, _OPEN)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_directory(directory: Path, timeout_s: float, purpose: str) -> Iterator[None]:
    """Lock `directory`; raise StoreError if another process holds it for `timeout_s`.

    `purpose` says what it is locked for, as in "opening the database". Blocks: call it in a thread.
    """
    descriptor = os.open(directory, _OPEN)
    try:
        try:
            for pause in _attempts(descriptor, timeout_s):
                time.sleep(pause)
        except TimeoutError:
            raise StoreError(
                f"another process has been {purpose} in {str(directory)!r} for {timeout_s:g} s; "
                "end it and try again"
            ) from None
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def hold_directory(
    directory: Path, *, shared: bool = False, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[None]:
    """Lock `directory` without blocking the event loop; raise StoreError after `timeout_s`.

    A `shared` lock can have several holders.
    """
    import asyncio  # not above: commands that only read lock no directory this way

    try:
        descriptor = os.open(directory, _OPEN)
    except OSError as error:
        raise StoreError(f"{str(directory)!r} cannot be opened: {error.strerror}") from None
    try:
        try:
            for pause in _attempts(descriptor, timeout_s, shared=shared):
                await asyncio.sleep(pause)
        except TimeoutError:
            raise StoreError(
                f"{str(directory)!r} has been in use for {timeout_s:g} s: "
                "wait for the other infloop to finish and try again"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _attempts(descriptor: int, timeout_s: float, *, shared: bool = False) -> Iterator[float]:
    """Try until the lock is held; yield the pause before each new attempt.

    Raises TimeoutError after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() >= deadline:
            raise TimeoutError
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)
