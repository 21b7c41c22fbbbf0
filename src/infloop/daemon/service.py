"""Starts queued runs, schedules and file triggers, and shuts down in order."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infloop.runtime.runs.shutdown import settle_runs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from infloop.application.trigger_firing import TriggerFiring
    from infloop.daemon.recovery import Recovery
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.triggers.services import Source

LAST_FIRED_SECONDS = 5.0
"""How often the times at which triggers last fired are written."""


class TriggerLoops:
    """Runs the sources of triggers, which wait for times and for changed files."""

    def __init__(self, firing: TriggerFiring, sources: Sequence[Source]) -> None:
        self._firing = firing
        self._sources = sources

    async def run(self) -> None:
        """Fire triggers until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for source in self._sources:
                    group.create_task(source.run())
                group.create_task(self._write_last_fired())
        finally:
            self._firing.write_last_fired()

    async def _write_last_fired(self) -> None:
        while True:
            await asyncio.sleep(LAST_FIRED_SECONDS)
            await asyncio.to_thread(self._firing.write_last_fired)


class Daemon:
    """Everything that works without a request.

    `triggers` and `recovery` are None in a process that fires no triggers, or that takes over
    nothing from others.
    """

    def __init__(
        self,
        service: RunService,
        dispatcher: Dispatcher,
        triggers: TriggerLoops | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        self._service = service
        self._dispatcher = dispatcher
        self._triggers = triggers
        self._recovery = recovery

    async def take_over(self) -> None:
        """Go on with what processes left behind that died before this one started."""
        if self._recovery is not None:
            await self._recovery.look()

    @asynccontextmanager
    async def running(self, reason: str) -> AsyncIterator[None]:
        """Start runs while this is open; then start no more and settle the live ones.

        Live runs are cancelled with `reason`, except those whose workflow asks to be resumed.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._dispatcher.run())]
            if self._triggers is not None:
                tasks.append(group.create_task(self._triggers.run()))
            if self._recovery is not None:
                tasks.append(group.create_task(self._recovery.run()))
            try:
                yield
            finally:
                self._dispatcher.close()
                for task in tasks:
                    task.cancel()
        await settle_runs(self._service, reason)
        await self._service.settle_audit()

    async def drain(self) -> None:
        """Start no more runs, and wait for those that are live."""
        self._dispatcher.close()
        while live := self._service.live():
            await asyncio.gather(*map(self._service.wait, live), return_exceptions=True)
