"""How a process that drives runs stops: those that go on are settled, as their workflows ask."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.runtime.runs.recovery import wants_resume

if TYPE_CHECKING:
    from infloop.runtime.runs.service import RunService

SETTLE_SECONDS = 10.0


async def settle_runs(service: RunService, reason: str) -> None:
    """Stop the runs that go on, but for those that the next start goes on with."""
    run_log = service.store.run_log
    stopped: list[str] = []
    for run_id in service.live():
        with suppress(NotFound):
            if not await wants_resume(run_log, await run_log.run(run_id)):
                await service.stop(run_id, reason)
                stopped.append(run_id)
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_SECONDS):
            await asyncio.gather(*map(service.wait, stopped), return_exceptions=True)
