"""Work on files, done beside the event loop and never left behind."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

from infloop.lowlevel.uncancelled import wait_uncancelled

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Stopped(Exception):
    """The work was asked to stop, and did."""


class Stop:
    """Asks work in a thread to stop at its next convenient moment."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ask(self) -> None:
        """Ask it to stop."""
        self._event.set()

    def check(self) -> None:
        """Raise Stopped when it was asked to; called by the work."""
        if self._event.is_set():
            raise Stopped


async def in_thread(work: Callable[[Stop], T]) -> T:
    """Do `work` in a thread; cancelled, it is asked to stop and has ended before this returns."""
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
