"""Tidies up behind runs: the oldest are forgotten, and what the others hold can be searched for.

No run waits for it. The first that ends is seen to at once; those that end within a moment are seen
to together after it, so that many short runs are few transactions. When very many end, only the
newest of them are indexed, for most are forgotten before anybody looks: whoever searches indexes
the rest. What fails is made good by the next search and the next run.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.store.interfaces.run_log import RunLog

GATHER_SECONDS = 0.25
MOST_INDEXED = 20

_log = logging.getLogger("infloop.runs")


class Tidying:
    """Keeps `history` runs of each workflow; `forgotten` is called when some are forgotten."""

    def __init__(
        self, run_log: RunLog, history: int, forgotten: Callable[[], Awaitable[None]]
    ) -> None:
        self._run_log = run_log
        self._history = history
        self._forgotten = forgotten
        self._ended: dict[str, str] = {}
        self._working: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def ended(self, run_id: str, workflow_id: str) -> None:
        """See to a run that has ended, soon."""
        self._ended[run_id] = workflow_id
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Finish what there is to do."""
        self._hurry.set()
        if self._working is not None:
            await self._working

    async def _work(self) -> None:
        while self._ended:
            ended, self._ended = self._ended, {}
            try:
                await self._tidy(ended)
            except Exception as error:  # noqa: BLE001  (the edge of a task: see above)
                _log.warning("ended runs are not tidied up yet: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._hurry.wait()
        self._working = None

    async def _tidy(self, ended: dict[str, str]) -> None:
        gone = [
            await self._run_log.prune(workflow_id, self._history)
            for workflow_id in set(ended.values())
        ]
        await self._run_log.index_runs(*[*ended][-MOST_INDEXED:])
        if any(gone):
            await self._forgotten()
