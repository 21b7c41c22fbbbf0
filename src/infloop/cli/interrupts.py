"""Ctrl+C and SIGTERM: the first asks a command to stop, the second ends it at once."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CANCELLED = 130
# Numbers, because the `signal` module can also send signals, which only the sandbox may do.
SIGINT, SIGTERM = 2, 15


@contextmanager
def on_interrupt(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Call `first` at the first Ctrl+C or SIGTERM, `second` at each later one."""
    loop = asyncio.get_running_loop()
    actions = iter((first, second))

    def act() -> None:
        next(actions, second)()

    for number in (SIGINT, SIGTERM):
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in (SIGINT, SIGTERM):
            loop.remove_signal_handler(number)


def exit_at_once() -> None:
    """End this process without waiting; the keepers kill all children."""
    os._exit(CANCELLED)
