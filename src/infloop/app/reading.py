"""Runs a command that only reads the store.

On SQLite it needs no event loop: reading does not wait, so a coroutine that reads ends in one step.
Without asyncio, TLS, uvloop and threads, `infloop runs` takes 185 instead of 245 ms of CPU time
(medians of 12 pairs on a busy machine; the best of each: 156 and 208 ms).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from infloop.app.process import collect_rarely, settings
from infloop.app.storage import open_read_only, open_store
from infloop.app.use_cases import open_application

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from infloop.application.application import Application

Result = TypeVar("Result")


def read(
    use: Callable[[Application], Coroutine[object, object, Result]], *, waits: bool = False
) -> Result:
    """Open the use cases, call `use` with them, and close them again.

    Unless it `waits`, `use` must neither wait for anything nor write: RuntimeError if it does.
    """
    chosen = settings()
    waits = waits or bool(chosen.database)

    async def main() -> Result:
        async with open_application(chosen, open_store if waits else open_read_only) as application:
            return await use(application)

    if not waits:
        collect_rarely()
        return _run_at_once(main())
    from infloop.app.event_loop import run_async

    return run_async(main())


def _run_at_once(main: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine that never waits."""
    try:
        main.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    main.close()
    raise RuntimeError("a command that only reads has waited for something")
