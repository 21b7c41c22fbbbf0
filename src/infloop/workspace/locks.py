"""Taking turns, within this process and with others: locks that the kernel lets go of.

A directory can be locked itself, so that nothing need be written into a place that is not ours.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infloop.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DEADLINE_S = 120.0
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1


@asynccontextmanager
async def shared(directory: Path, deadline_s: float = DEADLINE_S) -> AsyncIterator[None]:
    """Hold `directory` together with others; raise StoreError at the deadline."""
    async with _held(directory, fcntl.LOCK_SH, deadline_s):
        yield


@asynccontextmanager
async def exclusive(directory: Path, deadline_s: float = DEADLINE_S) -> AsyncIterator[None]:
    """Hold `directory` alone; raise StoreError at the deadline."""
    async with _held(directory, fcntl.LOCK_EX, deadline_s):
        yield


@asynccontextmanager
async def _held(directory: Path, kind: int, deadline_s: float) -> AsyncIterator[None]:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{str(directory)!r} cannot be opened: {error.strerror}") from None
    try:
        await _acquire(descriptor, kind, deadline_s, directory)
        yield
    finally:
        os.close(descriptor)


async def _acquire(descriptor: int, kind: int, deadline_s: float, directory: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() >= deadline:
                raise StoreError(
                    f"{str(directory)!r} has been in use for {deadline_s:g} s: "
                    "wait for the other infloop to finish and try again"
                ) from None
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class Presence:
    """A lock file that shows others that this process is alive; gone with the process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        # Under its name only when it is locked, so that a free file is a dead process's.
        unseen = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        self._descriptor = os.open(unseen, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unseen.replace(path)

    def close(self) -> None:
        """Show it no longer."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def is_present(path: Path) -> bool:
    """Say whether the process that made the lock file is alive."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_absent(directory: Path) -> None:
    """Remove the lock files of processes that are gone."""
    for path in directory.glob("[!.]*"):
        if not is_present(path):
            path.unlink(missing_ok=True)
