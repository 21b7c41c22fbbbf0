"""Settles live runs when the process stops."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.runtime.runs.recovery import wants_resume

if TYPE_CHECKING:
    from infloop.runtime.runs.service import RunService

TIMEOUT_SECONDS = 10.0


async def settle_runs(service: RunService, reason: str) -> None:
    """Cancel live runs, except those whose workflow asks to be resumed at the next start."""
    run_log = service.store.run_log
    stopped: list[str] = []
    for run_id in service.live():
        with suppress(NotFound):
            if not await wants_resume(run_log, await run_log.run(run_id)):
                await service.stop(run_id, reason)
                stopped.append(run_id)
    with suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*map(service.wait, stopped), return_exceptions=True)
