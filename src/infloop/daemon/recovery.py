"""Takes over from processes that died while this one runs, wherever they ran.

A run that this process cannot drive any more, because the store failed, is treated alike.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from infloop.engine.graph import decode_definition
from infloop.errors import Fenced, InfloopError, StoreError
from infloop.runtime.runs.dispatch import requires_of

if TYPE_CHECKING:
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService

LOOK_SECONDS = 1.0
"""How often to look for processes that died."""

MOST_LOOKS = 100
"""How often all processes together look in that time: each look reads all of them."""

RETRY_SECONDS = 15.0
"""How often to try again what could not be taken over: a run whose files are on another machine."""

_log = logging.getLogger("infloop.runs")


class Recovery:
    """Settles or resumes the runs of dead processes, and requeues the entries they had taken.

    All servers and workers look; fencing lets one of them take over each run.
    """

    def __init__(self, service: RunService, dispatcher: Dispatcher) -> None:
        self._service = service
        self._dispatcher = dispatcher
        self._known_dead: set[str] = set()
        self._last_try = 0.0
        # At first there may be runs of processes that are not known any more.
        self._left: list[str] | None = None
        self._refused: dict[str, str] = {}
        self._processes = 1

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * max(1.0, self._processes / MOST_LOOKS))
            await self.look()

    async def look(self) -> None:
        """Take over from processes that died since the last look."""
        try:
            await self._look()
        except StoreError as error:  # tried again: the database may come back
            _log.warning("cannot look for dead processes: %s", error)

    async def _look(self) -> None:
        service, now = self._service, asyncio.get_running_loop().time()
        if service.instance.is_late():  # it may itself be taken for dead
            return
        liveness = service.store.liveness
        rows = await liveness.instances()
        self._processes = len(rows)
        states = await liveness.states([row.id for row in rows])
        dead = {name for name, state in states.items() if state == "dead"} | service.dropped()
        is_new = self._left is None or bool(dead - self._known_dead)
        if not is_new and (not (dead or self._left) or now - self._last_try < RETRY_SECONDS):
            return
        self._known_dead, self._last_try = dead, now
        found = await service.recover()
        for line in found.messages:
            _log.warning("%s", line)
        for run_id in found.failed:
            _log.warning("run %s was interrupted by a crash and is recorded as failed", run_id)
        self._left = found.resumable
        for run_id in found.resumable:
            await self._resume(run_id)
        await liveness.sweep()  # those whose runs were resumed
        self._dispatcher.wake()

    async def _resume(self, run_id: str) -> None:
        """Go on with a run of a dead process, if this one can; it stays interrupted otherwise."""
        service, capacity = self._service, self._dispatcher.capacity
        loaded = await service.store.run_log.load(run_id, until_seq=0)
        definition = decode_definition(loaded.definition)
        if not capacity.fits(requires_of(definition.workflows[definition.root])):
            return
        if len(service.live()) >= capacity.runs:
            self._known_dead.discard(loaded.run.owner)  # looked at again as soon as possible
            return
        try:
            await service.resume(run_id)
        except Fenced:
            return  # another process was first
        except InfloopError as error:
            now = await service.store.run_log.run(run_id)
            if (now.owner, now.status) != (loaded.run.owner, loaded.run.status):
                return  # another process was first
            if self._refused.get(run_id) != str(error):
                _log.warning("run %s cannot continue here: %s", run_id, error)
            self._refused[run_id] = str(error)
        else:
            self._refused.pop(run_id, None)
            _log.warning("run %s goes on here: it was interrupted", run_id)
