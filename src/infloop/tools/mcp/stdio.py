"""Messages of a server that is a program: one line each, on its standard streams.

The program runs in the sandbox. It is paused while it writes faster than it is read, and ended when
a line is too long. When the streams are closed, its whole process tree is gone.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.lowlevel.uncancelled import wait_uncancelled
from infloop.sandbox.base import FlowControl
from infloop.tools.mcp.definitions import plain_text
from infloop.tools.mcp.streams import MAX_MESSAGE_BYTES, Inbox, Outbox, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from mcp.shared.message import SessionMessage

    from infloop.sandbox.base import ChildRequest, ChildResult, Sandbox, Stream
    from infloop.tools.mcp.streams import Streams

_CAPTURED_BYTES = 8 << 10
_MAX_WAITING_CHARS = 1 << 20
_STDERR_CHARS = 500


@asynccontextmanager
async def program_streams(sandbox: Sandbox, child: ChildRequest) -> AsyncGenerator[Streams]:
    """Start a server and yield its streams; end it on leaving."""
    output = _Output()
    lines: asyncio.Queue[bytes] = asyncio.Queue(1)

    async def send(item: SessionMessage) -> None:
        await lines.put(encoded(item.message) + b"\n")

    async def written() -> AsyncIterator[bytes]:
        while True:
            yield await lines.get()

    inbox = Inbox()
    request = replace(
        child,
        stdin=written(),
        flow_control=output.flow_control,
        max_output_bytes=_CAPTURED_BYTES,
    )
    running = asyncio.create_task(sandbox.run(request, on_output=output.feed))
    running.add_done_callback(lambda _: output.changed.set())
    reading = asyncio.create_task(_pass_on(running, output, inbox))
    try:
        yield inbox, Outbox(send)
    finally:
        await _end(reading)
        await _end(running)


async def _pass_on(running: asyncio.Task[ChildResult], output: _Output, inbox: Inbox) -> None:
    """Give the server's lines to the session until it ends or breaks the rules."""
    while not output.too_long:
        ended = running.done()
        for line in output.take():
            await inbox.put(line)
        if ended:
            break
        await output.wait()
    if output.too_long:
        running.cancel()
        await inbox.end(f"it sent a message of more than {MAX_MESSAGE_BYTES} characters")
    else:
        await inbox.end(_why(running))


def _why(running: asyncio.Task[ChildResult]) -> str:
    if running.cancelled() or running.exception() is not None:
        return "it could not be run"
    result = running.result()
    stderr = plain_text(result.stderr[-_STDERR_CHARS:], _STDERR_CHARS).strip()
    how = result.error or f"it ended with exit code {result.exit_code}{result.hint_suffix}"
    return f"{how}: {stderr}" if stderr else how


async def _end(task: asyncio.Task[None] | asyncio.Task[ChildResult]) -> None:
    """End a task and wait until nothing of it is left, even if this task is cancelled."""
    task.cancel()
    cancelled = await wait_uncancelled(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
    if cancelled:
        raise asyncio.CancelledError


class _Output:
    """Cuts the server's output into lines, in bounded memory."""

    def __init__(self) -> None:
        self.flow_control = FlowControl()
        self.changed = asyncio.Event()
        self.too_long = False
        self._lines: list[str] = []
        self._line: list[str] = []
        self._line_chars = 0
        self._waiting_chars = 0

    def feed(self, stream: Stream, text: str) -> None:
        """Take output from the sandbox."""
        if stream == "stderr" or self.too_long:
            return
        first, *others = text.split("\n")
        self._add(first)
        for rest in others:
            self._lines.append("".join(self._line))
            self._line, self._line_chars = [], 0
            self._add(rest)
        self._waiting_chars += len(text)
        if self._waiting_chars > _MAX_WAITING_CHARS and self._lines:
            self.flow_control.pause()
        self.changed.set()

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        self._waiting_chars = 0
        return lines

    async def wait(self) -> None:
        """Wait for more output, or the end."""
        self.flow_control.resume()
        await self.changed.wait()
        self.changed.clear()

    def _add(self, piece: str) -> None:
        self._line.append(piece)
        self._line_chars += len(piece)
        self.too_long = self.too_long or self._line_chars > MAX_MESSAGE_BYTES
