"""Calls to file systems that may hang: a network file system can be gone for hours.

Each call has a daemon thread of its own. An executor does not fit, because Python waits for the
threads of an executor when the process exits.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TIMEOUT_S = 5.0
"""How long callers wait for an answer."""


def call_in_daemon_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Return the future result of `function`, which must not raise."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def call() -> None:
        result = function()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_set_result, future, result)

    Thread(target=call, daemon=True).start()
    return future


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
