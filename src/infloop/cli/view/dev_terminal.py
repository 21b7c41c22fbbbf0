"""The status line of a development loop on a terminal, and its keys.

The last line shows every process with its state. Output is written above it.

    1-9 choose a process   r restart it   m mute it   l change its level   f follow it alone
    q   quit
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import termios
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from infloop.cli.view.terminal import one_line
from infloop.model.dev.line_levels import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infloop.cli.view.dev_lines import DevLines
    from infloop.model.dev.status import ProcessStatus

KEYS = "1-9 choose, r restart, m mute, l level, f follow, q quit"
_CLEAR = "\r\x1b[2K"
_COLOURS = {
    "ready": 32,
    "running": 32,
    "starting": 33,
    "waiting": 33,
    "restarting": 33,
    "crash-loop": 31,
    "failed": 31,
}


class StatusLine:
    """Draws the states, and turns keys into calls."""

    def __init__(
        self,
        lines: DevLines,
        status: Callable[[], Sequence[ProcessStatus]],
        restart: Callable[[str], None],
        stop: Callable[[], None],
    ) -> None:
        self._lines = lines
        self._status = status
        self._restart = restart
        self._stop = stop
        self._chosen = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line and read keys; restore the terminal afterwards."""
        stdin = sys.stdin.fileno()
        before = termios.tcgetattr(stdin)
        tty.setcbreak(stdin, termios.TCSANOW)
        loop = asyncio.get_running_loop()
        loop.add_reader(stdin, self._read_keys, stdin)
        self._lines.above(self._clear, self.draw)
        self.draw()
        try:
            yield
        finally:
            loop.remove_reader(stdin)
            self._lines.above(None, None)
            with suppress(OSError, termios.error):  # the terminal is gone
                self._clear()
                termios.tcsetattr(stdin, termios.TCSANOW, before)

    def draw(self) -> None:
        """Draw the line again."""
        width = shutil.get_terminal_size().columns - 1
        parts, room = [], width
        for number, status in enumerate(self._status()):
            text = one_line(f"{number + 1} {status.name} {status.state}{self._marks(status.name)}")
            if len(text) + 3 > room:
                break
            room -= len(text) + 3
            colour = _COLOURS.get(status.state, 0)
            chosen = "7;" if number == self._chosen else ""
            parts.append(f"\x1b[{chosen}{colour}m{text}\x1b[0m")
        keys = KEYS if room > len(KEYS) else ""
        sys.stdout.write(f"{_CLEAR}{' | '.join(parts)}{f' | {keys}' if keys else ''}"[: width * 8])
        sys.stdout.flush()

    def _marks(self, name: str) -> str:
        muted = " (muted)" if name in self._lines.muted else ""
        level = self._lines.levels.get(name, "debug")
        least = f" ({level})" if level != "debug" else ""
        return f"{muted}{least}{' (alone)' if self._lines.followed == name else ''}"

    def _clear(self) -> None:
        sys.stdout.write(_CLEAR)
        sys.stdout.flush()

    def _read_keys(self, stdin: int) -> None:
        try:
            pressed = os.read(stdin, 64).decode("ascii", "replace")
        except OSError:
            pressed = ""
        if not pressed:  # the terminal is gone; a signal says so
            asyncio.get_running_loop().remove_reader(stdin)
        for key in pressed:
            self._press(key)
        with suppress(OSError):
            self.draw()

    def _press(self, key: str) -> None:
        names = [status.name for status in self._status()]
        if key == "q":
            self._stop()
        elif key in "123456789" and int(key) <= len(names):
            self._chosen = int(key) - 1
        elif self._chosen < len(names):
            name = names[self._chosen]
            if key == "r":
                self._restart(name)
            elif key == "m":
                self._lines.muted ^= {name}
            elif key == "l":
                shown = self._lines.levels.get(name, "debug")
                self._lines.levels[name] = LEVELS[(LEVELS.index(shown) + 1) % len(LEVELS)]
            elif key == "f":
                self._lines.followed = "" if self._lines.followed == name else name
