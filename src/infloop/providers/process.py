"""Runs a program from start to end and reads its output as it comes.

It is over when the program has ended, or when its reader expects no more (see `output_reader`).
Then, and when the caller leaves early or is cancelled, the whole process tree is ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.errors import StepError
from infloop.lowlevel.uncancelled import wait_uncancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from infloop.providers.base import AnswerPart, Done
    from infloop.providers.output_reader import OutputReader
    from infloop.sandbox.base import ChildRequest, ChildResult, Sandbox

CAPTURED_BYTES = 64 << 10
"""How much output the sandbox captures. The reader gets all of it; nobody reads the capture."""


async def run_program(
    sandbox: Sandbox,
    child: ChildRequest,
    reader: OutputReader,
    *,
    conclude: Callable[[ChildResult | None], Done],
    install_hint: str,
    on_early_exit: Callable[[asyncio.Task[ChildResult]], Awaitable[None]] | None = None,
) -> AsyncIterator[AnswerPart]:
    """Run the program; yield the parts of its answer, and last what `conclude` returns.

    Raises StepError with `install_hint` if it could not be started. If the caller leaves early,
    `on_early_exit` is awaited before the program is ended.
    """
    child = replace(child, flow_control=reader.flow_control, max_output_bytes=CAPTURED_BYTES)
    running = asyncio.create_task(sandbox.run(child, on_output=reader.feed))
    running.add_done_callback(lambda _: reader.changed.set())
    try:
        while not running.done() and reader.expects_more:
            await reader.wait()
            for part in reader.take():
                yield part
        result = running.result() if running.done() else None
        await _end(running)
        if result is not None and result.error and not reader.has_output:
            raise StepError(f"{result.error}; {install_hint}")
        reader.finish(result)
        for part in reader.take():
            yield part
        yield conclude(result)
    finally:
        try:
            if on_early_exit is not None and not running.done():
                await on_early_exit(running)
        finally:
            await _end(running)


async def _end(running: asyncio.Task[ChildResult]) -> None:
    """End the program and wait until nothing of it is left, even if this task is cancelled."""
    running.cancel()
    cancelled = await wait_uncancelled(running)
    if not running.cancelled():
        running.exception()  # retrieved, so that asyncio does not log it
    if cancelled:
        raise asyncio.CancelledError
