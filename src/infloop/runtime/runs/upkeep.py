"""Regular work of a process that drives runs: several times a second, as long as it is open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.runtime.runs.live_runs import LiveRuns
    from infloop.runtime.runs.shared import SharedResources

POLL_SECONDS = 0.2
HEARTBEAT_SECONDS = 5.0


class Upkeep:
    """Sends the heartbeat, keeps disk space free, learns new secrets, obeys stop requests."""

    def __init__(self, shared: SharedResources, live: LiveRuns) -> None:
        self._shared = shared
        self._live = live
        self._last_heartbeat = -HEARTBEAT_SECONDS
        self._seen_version: int | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._abort_for_disk_space()
            self._shared.dependencies.redactor.refresh()
            await self._heartbeat()
            await self._obey_stop_requests()
            await asyncio.sleep(POLL_SECONDS)

    async def _heartbeat(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._last_heartbeat >= HEARTBEAT_SECONDS:
            await self._shared.instance.heartbeat()
            self._last_heartbeat = now

    async def _obey_stop_requests(self) -> None:
        """Stop the runs that other processes asked to stop."""
        store = self._shared.store
        version = store.changes.version()
        if version == self._seen_version or not self._live:
            return
        for request in await store.liveness.stop_requests(self._shared.instance.id):
            live = self._live.get(request.run_id)
            if live is not None:
                live.loop.stop(request.reason)
        self._seen_version = version

    def _abort_for_disk_space(self) -> None:
        """Abort runs that would use up the disk reserve."""
        for_all = self._shared.dependencies.disk_reserve.shortage() if self._live else ""
        for live in self._live:
            if reason := for_all or live.disks.shortage():
                live.disks.mark_exhausted()
                live.loop.abort(reason)
