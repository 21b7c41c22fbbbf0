"""A command on a terminal of its own: what it shows, and what is typed there."""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import signal
import struct
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support import forkserver
from support.eventually import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


class Terminal:
    """A running command, and all that it has shown so far."""

    def __init__(self, process: forkserver.Command, leader: int) -> None:
        self.process = process
        self.shown = ""
        self._leader = leader
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, within_s: float = PATIENCE_S) -> bool:
        """Wait for more to be shown; false when the command has left the terminal."""
        ready, _, _ = select.select([self._leader], [], [], max(within_s, 0))
        assert ready, f"nothing more is shown after:\n{self.shown}"
        try:
            piece = os.read(self._leader, 65_536)
        except OSError:  # nobody has the other side open
            return False
        self.shown += self._decoder.decode(piece)
        return bool(piece)

    def read_until(self, words: str, *, and_more: int = 0) -> str:
        """Return all that is shown once it has these words, and so many characters after them."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.shown.partition(words)[2]) < and_more or words not in self.shown:
            assert self.read(deadline - time.monotonic()), f"{words!r} is not in:\n{self.shown}"
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def close(self) -> None:
        """Close the terminal, as somebody does who closes its window."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._leader)
        os.close(nothing)

    def hang_up(self) -> None:
        """Close the terminal and send what the kernel sends then; wait for the end."""
        self.close()
        self.process.send_signal(signal.SIGHUP)
        self.process.wait(PATIENCE_S)

    def end(self) -> int:
        """Read to the end; return the exit code."""
        while self.read():
            pass
        return self.process.wait(PATIENCE_S)


@contextmanager
def on_terminal(
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    *,
    lines: int = 24,
    columns: int = 80,
) -> Iterator[Terminal]:
    """Start `infloop` on a terminal of this size; it is killed if it has not ended by itself."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = forkserver.Command(
        arguments,
        cwd,
        env,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        new_session=True,
    )
    os.close(follower)
    terminal = Terminal(process, leader)
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(leader)
