"""Brings what happens in runs of other processes to those who follow all runs here.

It works while somebody follows, and for a while after that, so that a client that reconnects has
missed nothing.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infloop.errors import NotFound, StoreError
from infloop.store.interfaces.changes import RUNS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.runtime.event_bus import EventBus
    from infloop.store.interfaces.liveness import Instance
    from infloop.store.interfaces.run_log import RunRow
    from infloop.store.interfaces.store import Store

GATHER_SECONDS = 0.1
"""How far apart two looks are at least."""

CHECK_SECONDS = 5.0
"""How often to look although nothing was announced."""

LINGER_SECONDS = 60.0
"""How long to go on when nobody follows any more."""

MOST_RUNNING = 1_000
NEWEST = 100
"""How many runs are looked at: those that run, and the newest, which may have ended already."""

_log = logging.getLogger("infloop.runs")


class Relay:
    """Publishes events of runs that other processes drive, to the listeners of the event bus.

    `began` is the number of the last message on the bus before it began.
    """

    def __init__(self, store: Store, instance: Instance, bus: EventBus) -> None:
        self._store = store
        self._instance = instance
        self._bus = bus
        self.began = 0
        self._followers = 0
        # How far each run was told.
        self._told: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ready = asyncio.Event()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Publish what happens from now on, at least while this is open."""
        self._followers += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            if self._task is None:
                self._task = asyncio.create_task(self._run())
            await self._ready.wait()
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(LINGER_SECONDS, self._stop)

    async def close(self) -> None:
        """Publish no more."""
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._ready = asyncio.Event()

    async def _run(self) -> None:
        ready, trouble = self._ready, ""
        self.began = self._bus.last
        self._told = {}
        changes = self._store.changes
        while True:
            version = changes.version(RUNS)
            try:
                await self._look(publish=ready.is_set())
            except StoreError as error:  # tried again: the database may come back
                if str(error) != trouble:
                    _log.warning("runs of other processes are not followed: %s", error)
                trouble = str(error)
            else:
                trouble = ""
            ready.set()
            await asyncio.sleep(GATHER_SECONDS)
            await changes.wait(RUNS, version, CHECK_SECONDS)

    async def _look(self, *, publish: bool) -> None:
        """Publish what is new; or only note how far the runs are."""
        log = self._store.run_log
        running = await log.runs(status="running", limit=MOST_RUNNING)
        newest = await log.runs(limit=NEWEST)
        rows = {row.id: row for row in [*running, *newest]}
        for run_id in self._told.keys() - rows.keys():  # it has ended, and many began after it
            try:
                rows[run_id] = await log.run(run_id)
            except NotFound:
                del self._told[run_id]
        for row in sorted(rows.values(), key=lambda row: row.started_at):
            await self._tell(row, publish=publish)
        over = [row.id for row in rows.values() if row.finished_at is not None]
        for run_id in set(over) - {row.id for row in newest}:
            self._told.pop(run_id, None)

    async def _tell(self, row: RunRow, *, publish: bool) -> None:
        after = self._told.get(row.id, 0)
        self._told[row.id] = max(after, row.last_seq)
        # The process itself publishes what happens in its own runs.
        if not publish or row.owner == self._instance.id:
            return
        while after < row.last_seq:
            batch = await self._store.run_log.events(row.id, after, row.last_seq)
            if not batch:
                return
            for item in batch:
                self._bus.relay(item)
            after = batch[-1].seq
