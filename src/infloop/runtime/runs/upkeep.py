"""Regular work of a process that drives runs: several times a second, as long as it is open."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from infloop.errors import Fenced, NotFound, StoreError
from infloop.store.interfaces.changes import STOPS

if TYPE_CHECKING:
    from infloop.runtime.runs.live_runs import LiveRuns
    from infloop.runtime.runs.shared import SharedResources

POLL_SECONDS = 0.2
LOOK_SECONDS = 5.0
"""How often to look for stop requests although none was announced."""

_log = logging.getLogger("infloop.runs")


class Upkeep:
    """Sends the heartbeat, keeps disk space free, learns new secrets, obeys stop requests.

    A process that did not send a heartbeat for long, because it was stopped or cut off, may have
    been taken for dead: others have its runs. It learns that from its next heartbeat, ends the
    steps of these runs, and registers anew.
    """

    def __init__(self, shared: SharedResources, live: LiveRuns) -> None:
        self._shared = shared
        self._live = live
        self._last_heartbeat = -shared.instance.heartbeat_seconds
        self._seen_version: int | None = None
        self._last_look = -LOOK_SECONDS
        self._trouble = ""

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._abort_for_disk_space()
            self._shared.dependencies.redactor.refresh()
            try:
                await self._heartbeat()
                await self._obey_stop_requests()
            except StoreError as error:  # tried again: the database may come back
                self._note_trouble(str(error))
            else:
                self._trouble = ""
            await asyncio.sleep(POLL_SECONDS)

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.warning("the store does not answer: %s", trouble)
        self._trouble = trouble

    async def _heartbeat(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._last_heartbeat < self._shared.instance.heartbeat_seconds:
            return
        try:
            await self._shared.instance.heartbeat()
        except Fenced as error:
            await self._register_anew(error)
        await self._give_up_lost_runs()
        self._last_heartbeat = now

    async def _register_anew(self, error: Fenced) -> None:
        """End all runs here and go on under a new id: others own what the old one had."""
        shared = self._shared
        _log.warning("%s", error)
        await self._live.lose_all(error)
        await shared.instance.renew()
        dependencies, row = shared.dependencies, shared.instance.row
        shared.ledger.act_as(row.id)
        if dependencies.child_records:
            dependencies.child_records.act_as(row.id)
        if dependencies.markers:
            dependencies.markers.act_as(row)
        _log.warning("registered anew as %s", row.id)

    async def _give_up_lost_runs(self) -> None:
        """End the runs here that another process has taken over."""
        own = self._shared.instance.id
        for live in list(self._live):
            try:
                row = await self._shared.store.run_log.run(live.id)
            except NotFound:
                continue
            if row.status == "running" and (row.owner, row.epoch) != (own, live.loop.epoch):
                self._live.fail(live.id, Fenced(f"run {live.id!r} belongs to {row.owner!r} now"))

    async def _obey_stop_requests(self) -> None:
        """Stop the runs that other processes asked to stop."""
        store, now = self._shared.store, asyncio.get_running_loop().time()
        version = store.changes.version(STOPS)
        is_time = now - self._last_look >= LOOK_SECONDS
        if not self._live or (version == self._seen_version and not is_time):
            return
        for request in await store.liveness.stop_requests(self._shared.instance.id):
            live = self._live.get(request.run_id)
            if live is not None:
                live.loop.stop(request.reason)
        self._seen_version, self._last_look = version, now

    def _abort_for_disk_space(self) -> None:
        """Abort runs that would use up the disk reserve."""
        for_all = self._shared.dependencies.disk_reserve.shortage() if self._live else ""
        for live in self._live:
            if reason := for_all or live.disks.shortage():
                live.disks.mark_exhausted()
                live.loop.abort(reason)
