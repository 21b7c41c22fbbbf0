"""Runs a command in a process that the terminal does not end."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from infloop.app.storage import make_directory

if TYPE_CHECKING:
    from collections.abc import Callable


class DetachedStartError(Exception):
    """The command ended before it reported that it had started; `said` is what it printed."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(said)
        self.said = said
        self.code = code


def run_detached(command: Callable[[Callable[[str], None]], int], log: Path) -> str:
    """Run `command` in the background; return what it passes to its argument once it has started.

    The process has a session of its own, no terminal, and writes what it prints to `log`. Call this
    before an event loop or a thread exists. Raises DetachedStartError if the command ends before.
    """
    make_directory(log.parent)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _become_background_process(output)
        _finish(command, writing, log)
    os.close(writing)
    os.close(output)
    os.waitpid(child, 0)
    with os.fdopen(reading, encoding="utf-8") as started:
        report = started.read()
    kind, _, text = report.partition(" ")
    if kind == "started":
        return text
    said = log.read_text(encoding="utf-8", errors="replace")
    with suppress(OSError):
        log.unlink()
    raise DetachedStartError(said, int(text) if kind == "ended" else 1)


def _become_background_process(output: int) -> None:
    """Leave the terminal: a new session, and a second fork so that nobody has to wait for it."""
    os.setsid()
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)


def _finish(command: Callable[[Callable[[str], None]], int], writing: int, log: Path) -> NoReturn:
    """Run the command and end this process. The log of one that ended by itself is not kept."""
    reported: list[str] = []

    def report(text: str) -> None:
        if not reported:
            reported.append(text)
            os.write(writing, text.encode())
            os.close(writing)

    code = 1
    try:
        code = command(lambda text: report(f"started {text}"))
        sys.stdout.flush()
        if reported:
            log.unlink(missing_ok=True)
    finally:
        report(f"ended {code}")
        os._exit(code)
