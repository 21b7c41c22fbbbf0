"""Ctrl+C, SIGTERM and a closed terminal: the first asks a command to stop, the second ends it."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infloop.app import ignores_hangup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CANCELLED = 130
# Numbers, because the `signal` module can also send signals, which only the sandbox may do.
SIGHUP, SIGINT, SIGTERM = 1, 2, 15
TERMINAL_CLOSED = "its terminal was closed"
REASONS = {
    SIGHUP: TERMINAL_CLOSED,
    SIGINT: "stopped at the terminal",
    SIGTERM: "its process was asked to end (SIGTERM)",
}


@contextmanager
def on_interrupt(first: Callable[[str], None], second: Callable[[], None]) -> Iterator[None]:
    """Call `first` with the reason at the first signal, and `second` at each later one.

    A terminal that closes is only a first signal: the shell and the kernel may each send one.
    """
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def act(number: int) -> None:
        if number == SIGHUP:
            leave_terminal()
        if not asked:
            asked.append(number)
            first(REASONS[number])
        elif number != SIGHUP:
            second()

    # `nohup` makes a command ignore the terminal's end; then it goes on.
    handled = [number for number in REASONS if number != SIGHUP or not ignores_hangup()]
    for number in handled:
        loop.add_signal_handler(number, act, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def exit_at_once() -> None:
    """End this process without waiting; the keepers kill all children."""
    os._exit(CANCELLED)


def is_closed_terminal(error: BaseException) -> bool:
    """Say whether nothing could be printed because the terminal was closed.

    The kernel refuses the next output at once; its SIGHUP is often handled later.
    """
    return isinstance(error, OSError) and error.errno == errno.EIO


def leave_terminal() -> None:
    """Let everything that is still printed go nowhere: a closed terminal takes nothing more.

    `isatty` no longer knows a closed terminal, but it is still a character device.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        if _is_device(stream):
            os.dup2(nowhere, stream)
    os.close(nowhere)


def _is_device(stream: int) -> bool:
    try:
        return stat.S_ISCHR(os.fstat(stream).st_mode)
    except OSError:  # it was never open
        return False
