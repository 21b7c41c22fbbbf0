"""Runs file work in threads that are never abandoned."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

from infloop.lowlevel.uncancelled import wait_uncancelled

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Stopped(Exception):
    """Raised by work in a thread after it was asked to stop."""


class Stop:
    """Asks work in a thread to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ask(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise Stopped if a stop was requested; the work calls this regularly."""
        if self._event.is_set():
            raise Stopped


async def in_thread(work: Callable[[Stop], T]) -> T:
    """Run `work` in a thread; on cancellation ask it to stop, and wait until it has ended."""
    stop = Stop()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.ask()
        await wait_uncancelled(task)
        if not task.cancelled():
            task.exception()
        raise
