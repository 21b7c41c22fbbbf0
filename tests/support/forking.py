"""Processes that are killed at random points, and the test's side that kills them.

A program calls `fork_for_each_line(work)`. It reads lines with a number and a folder on stdin; for
each it forks a child and prints `pid N` for it. On a line `go` the child works, and says what it
does in lines of its own, the last of them `done`. Everything is imported before the first fork, so
a child begins within milliseconds. The program goes on to serve the next test.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import gc
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import infloop
from support.paths import CHILDREN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    Work = Callable[[Path, int], Coroutine[object, object, None]]


# -- in the program that forks -----------------------------------------------------------------


def say(text: str) -> None:
    """Tell the test something; without a test there is nothing left to do."""
    try:
        os.write(1, f"{text}\n".encode())
    except BrokenPipeError:
        os._exit(1)


def import_all(*but: str) -> None:
    """Import infloop before forking, except modules whose names begin with these."""
    for module in pkgutil.walk_packages(infloop.__path__, "infloop."):
        if not module.name.startswith(but):
            importlib.import_module(module.name)


def fork_for_each_line(work: Work) -> None:
    """Let a child do `work`, in the folder that is named, for each line of stdin."""
    gc.freeze()  # a child that counted these would copy them
    for line in sys.stdin:
        number, folder = line.rstrip("\n").split(" ", 1)
        pid = os.fork()
        if pid == 0:
            os.read(0, 16)  # until the test holds a handle on this process
            try:
                asyncio.run(work(Path(folder), int(number)))
                os._exit(0)
            except BaseException as error:  # the parent must hear of it
                say(f"error {error!r} {traceback.format_exc()!r}")
                os._exit(1)
        say(f"pid {pid}")
        os.waitpid(pid, 0)
        say("gone")


# -- in the test -------------------------------------------------------------------------------


class Forker:
    """The forking process and the children it makes."""

    def __init__(self, program: str) -> None:
        self.folder = Path()
        self.kills = 0
        self._process = subprocess.Popen(
            [sys.executable, str(CHILDREN / program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdout is not None
        # A child that gets far ahead of what is read would be killed too seldom.
        fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, 4096)

    def run(self, number: int, kill_after: int | None, hear: Callable[[list[str]], None]) -> bool:
        """Let one child work; kill it after so many lines. Say whether it was done by then."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number} {self.folder}\n".encode())
        kind, pid = self._line()
        assert kind == "pid"
        handle = os.pidfd_open(int(pid))
        self._process.stdin.write(b"go\n")
        try:
            return self._watch(handle, kill_after, hear)
        except BaseException:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            raise
        finally:
            os.close(handle)

    def _watch(
        self, handle: int, kill_after: int | None, hear: Callable[[list[str]], None]
    ) -> bool:
        lines, done = 0, False
        while (words := self._line()) != ["gone"]:
            done = done or words == ["done"]
            hear(words)
            lines += 1
            if lines == kill_after:
                with suppress(ProcessLookupError):  # it may just have ended by itself
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    self.kills += 1
        return done

    def _line(self) -> list[str]:
        assert self._process.stdout is not None
        text = self._process.stdout.readline().decode()
        assert text, "the forking process ended"
        words = text.split()
        assert words[0] != "error", text
        return words

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def forker(program: str, folder: Path) -> Iterator[Forker]:
    """Lend a forking process, which lives on for the next test unless this one fails."""
    idle = _IDLE.setdefault(program, [])
    lent = idle.pop() if idle else Forker(program)
    lent.folder, lent.kills = folder, 0
    try:
        yield lent
    except BaseException:
        lent.close()
        raise
    idle.append(lent)


_IDLE: dict[str, list[Forker]] = {}


@atexit.register
def _close_all() -> None:
    for each in (forker for idle in _IDLE.values() for forker in idle):
        each.close()
