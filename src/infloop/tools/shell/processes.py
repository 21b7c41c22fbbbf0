"""Processes that keep running between calls, each with its input and its newest output."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from infloop.errors import InfloopError
from infloop.lowlevel.uncancelled import wait_uncancelled
from infloop.sandbox.keepers.capture import Capture
from infloop.tools.base import ToolError
from infloop.tools.shell.children import MAX_OUTPUT_BYTES, ending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.sandbox.base import ChildResult, Stream
    from infloop.tools.shell.children import Commands

MAX_RUNNING = 5
MAX_ENDED = 20
"""How many processes that have ended are remembered."""
MAX_PENDING_INPUT_BYTES = 1 << 20


class Process:
    """One process. It runs from `start` until it ends or is killed."""

    def __init__(self, number: int, line: str, commands: Commands) -> None:
        self.number = number
        self.line = line
        self._commands = commands
        self._output = _new_output()
        self._changed = asyncio.Event()
        self._has_output = False
        self._started = asyncio.Event()
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._pending_bytes = 0
        self._input_is_closed = False
        self._result: ChildResult | None = None
        self._failure = ""
        self._task = asyncio.create_task(self._run())

    @property
    def is_running(self) -> bool:
        return not self._task.done()

    @property
    def state(self) -> str:
        """How it is, in a few words."""
        if self.is_running:
            return "running"
        if self._result is None:
            return self._failure or "killed"
        if self._result.timed_out:
            return "ended at the time limit"
        return ending(self._result)

    async def started(self) -> None:
        """Wait until it runs; raise ToolError if it cannot."""
        await self._started.wait()
        reason = self._failure or (self._result.error if self._result else "")
        if reason:
            raise ToolError("not-started", "the process could not be started", reason)

    async def read(self, wait_ms: int) -> str:
        """Return what it has printed since the last call; if that is nothing, wait."""
        if self.is_running and not self._has_output and wait_ms:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
        text = self._output.finish().text
        self._output, self._has_output = _new_output(), False
        return text

    def write(self, data: bytes, *, close: bool) -> None:
        """Give it input; raise ToolError if it takes no more."""
        if not self.is_running or self._input_is_closed:
            raise ToolError("input-closed", f"process {self.number} takes no input")
        if self._pending_bytes + len(data) > MAX_PENDING_INPUT_BYTES:
            raise ToolError("input-full", f"process {self.number} does not read its input")
        self._pending_bytes += len(data)
        self._input.put_nowait(data)
        if close:
            self._input_is_closed = True
            self._input.put_nowait(None)

    async def kill(self) -> None:
        """End it with everything that it started."""
        self._task.cancel()
        if await wait_uncancelled(self._task):
            raise asyncio.CancelledError

    async def _run(self) -> None:
        request = self._commands.request(self.line, self._commands.max_command_ms, self._stdin())
        try:
            self._result = await self._commands.sandbox.run(
                request,
                on_output=self._on_output,
                on_started=lambda _pid, _ticks: self._started.set(),
            )
        except InfloopError as error:
            self._failure = str(error)
        finally:
            self._started.set()
            self._changed.set()

    def _on_output(self, _stream: Stream, text: str) -> None:
        self._output.feed(text.encode("utf-8", "replace"))
        self._has_output = True
        self._changed.set()

    async def _stdin(self) -> AsyncIterator[bytes]:
        while (data := await self._input.get()) is not None:
            yield data
            self._pending_bytes -= len(data)


class Processes:
    """The processes of one agent."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._numbers = count(1)
        self._all: dict[int, Process] = {}

    @property
    def all(self) -> list[Process]:
        """Those that run, and the last ones that have ended."""
        return list(self._all.values())

    def get(self, number: int) -> Process:
        """Return a process; raise ToolError if there is none with this number."""
        if number not in self._all:
            raise ToolError("no-such-process", f"there is no process {number}")
        return self._all[number]

    async def start(self, line: str) -> Process:
        """Start a process; raise ToolError if it cannot be started or too many run."""
        running = sum(process.is_running for process in self._all.values())
        if running >= MAX_RUNNING:
            raise ToolError(
                "too-many-processes", f"{running} processes are running: kill one of them first"
            )
        self._forget_ended()
        process = Process(next(self._numbers), line, self._commands)
        self._all[process.number] = process
        try:
            await process.started()
        except BaseException:
            del self._all[process.number]
            await process.kill()
            raise
        return process

    async def close(self) -> None:
        """End all processes."""
        for process in self.all:
            await process.kill()
        self._all.clear()

    def _forget_ended(self) -> None:
        ended = [process.number for process in self.all if not process.is_running]
        for number in ended[: max(0, len(ended) - MAX_ENDED + 1)]:
            del self._all[number]


def _new_output() -> Capture:
    return Capture("stdout", MAX_OUTPUT_BYTES, None)
