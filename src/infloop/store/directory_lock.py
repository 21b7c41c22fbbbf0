"""One process at a time: a lock on a directory, which the kernel lets go of however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infloop.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def alone_in(directory: Path, seconds: float, doing: str) -> Iterator[None]:
    """Hold the lock of `directory`; raise StoreError if another process has it for too long.

    `doing` says what it is held for. Blocks: call it in a thread.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, directory, seconds, doing)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def alone_at_once(directory: Path) -> Iterator[bool]:
    """Hold the lock of `directory` if nobody has it at this moment; say whether it is held."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock(descriptor: int, directory: Path, seconds: float, doing: str) -> None:
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while not _locked(descriptor):
        if time.monotonic() > deadline:
            raise StoreError(
                f"another process has been {doing} in {str(directory)!r} for {seconds:g} s; "
                "end it and try again"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
