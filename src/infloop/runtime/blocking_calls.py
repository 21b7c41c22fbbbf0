"""Questions to file systems that may not answer: one of a network can be gone for hours.

A thread of its own asks, which nobody has to wait for. It is no executor's: those are waited for
when a process ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_S = 5.0


def aside(ask: Callable[[], T]) -> asyncio.Future[T]:
    """Return the answer to come; `ask` raises nothing."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def look() -> None:
        found = ask()
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(_give, answer, found)

    Thread(target=look, daemon=True).start()
    return answer


def _give(answer: asyncio.Future[T], found: T) -> None:
    if not answer.done():
        answer.set_result(found)
