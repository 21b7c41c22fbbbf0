"""One program from its start to its end, heard as it goes.

It is over when the program has ended, or when there is no patience left to hear more (see
hearing). Then, and when whoever takes the parts leaves or is cancelled, its whole process tree is
ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.errors import StepError
from infloop.lowlevel.uncancelled import wait_uncancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from infloop.providers.base import Done, Part
    from infloop.providers.output_reader import Hearing
    from infloop.sandbox.base import ChildRequest, ChildResult, Sandbox

KEPT_BYTES = 64 << 10
"""How much of its output is kept beside what is heard: that is nobody's but the sandbox's own."""


async def listen(
    sandbox: Sandbox,
    child: ChildRequest,
    heard: Hearing,
    *,
    conclude: Callable[[ChildResult | None], Done],
    how_to_help: str,
    farewell: Callable[[asyncio.Task[ChildResult]], Awaitable[None]] | None = None,
) -> AsyncIterator[Part]:
    """Run the program; yield what is heard and at last what `conclude` makes of its end.

    Raises StepError, with advice, when it could not be started. A program that is left early is
    bidden `farewell` before it is ended.
    """
    child = replace(child, valve=heard.valve, max_output_bytes=KEPT_BYTES)
    running = asyncio.create_task(sandbox.run(child, on_output=heard.hear))
    running.add_done_callback(lambda _: heard.news.set())
    try:
        while not running.done() and heard.has_patience:
            await heard.something()
            for part in heard.take():
                yield part
        result = running.result() if running.done() else None
        await _end(running)
        if result is not None and result.error and not heard.anything:
            raise StepError(f"{result.error}; {how_to_help}")
        heard.finish(result)
        for part in heard.take():
            yield part
        yield conclude(result)
    finally:
        try:
            if farewell is not None and not running.done():
                await farewell(running)
        finally:
            await _end(running)


async def _end(running: asyncio.Task[ChildResult]) -> None:
    """End the program; when this returns nothing of it is left, however often we are cancelled."""
    running.cancel()
    cancelled = await wait_uncancelled(running)
    if not running.cancelled():
        running.exception()  # whoever leaves early does not want to know
    if cancelled:
        raise asyncio.CancelledError
