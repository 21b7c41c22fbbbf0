"""What happens now: in one run, or in all runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infloop.application.runs.followed_run import FollowedRun
from infloop.application.runs.watched_run import WatchedRun
from infloop.runtime.event_bus import BusItem, BusMessage
from infloop.runtime.runs.following import follow
from infloop.store.interfaces.queue import QueueEntry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from infloop.application.resources import Resources
    from infloop.application.runs.history import RunHistory
    from infloop.application.runs.models import RunSummary, StartedRun
    from infloop.model.events import Recorded
    from infloop.runtime.event_bus import EventBus

QUEUE_POLL_SECONDS = 0.1


class Live:
    """Follows runs, whichever process drives them."""

    def __init__(self, resources: Resources, history: RunHistory) -> None:
        self._resources = resources
        self._history = history

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[list[Recorded]]:
        """Yield a run's events and output after `after` to its end; it may still be queued."""
        while isinstance(entry := await self._history.find_row_or_entry(run_id), QueueEntry):
            if not entry.is_waiting:
                return
            await asyncio.sleep(QUEUE_POLL_SECONDS)
        async for batch in self._batches(run_id, after):
            yield batch

    def _batches(self, run_id: str, after: int) -> AsyncIterator[list[Recorded]]:
        service = self._resources.driving()
        if service is not None:
            return service.listen(run_id, after)
        return follow(self._resources.store, run_id, after)

    async def watch(self, started: StartedRun) -> WatchedRun:
        """Watch a run that was just started in this process."""
        return WatchedRun(await self._resources.service(), started)

    def attach(self, run_id: str) -> FollowedRun:
        """Watch a run, whichever process drives it."""
        return FollowedRun(self._resources.store, run_id)

    async def settled(self, run_id: str, timeout_s: float) -> RunSummary | None:
        """Return a run once it has settled, or None if that takes longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                async for _ in self.follow(run_id):
                    pass
        except TimeoutError:
            return None
        return await self._history.summarize(await self._resources.store.run_log.run(run_id))

    async def has_more(self, run_id: str, after: int) -> bool:
        """Say whether a reader that has seen everything up to `after` will see more."""
        found = await self._history.find_row_or_entry(run_id)
        if isinstance(found, QueueEntry):
            return found.is_waiting
        return found.finished_at is None or after < found.last_seq

    @asynccontextmanager
    async def following_all(self) -> AsyncIterator[tuple[EventBus, int]]:
        """Give what happens in all runs, whichever process drives them, while this is open.

        With the number after which nothing is missing.
        """
        service = self._resources.driving()
        assert service is not None, "only a process that drives runs has an event bus"
        async with service.relay.following():
            yield service.event_bus, service.relay.began

    @property
    def process_id(self) -> str:
        """The id of this process as an owner of runs."""
        service = self._resources.driving()
        return service.instance.id if service else ""


__all__ = ["BusItem", "BusMessage", "Live"]
