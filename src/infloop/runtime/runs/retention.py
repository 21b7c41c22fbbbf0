"""Prunes old runs and indexes finished ones for search.

- No run waits for it.
- The first run that ends is handled at once. Runs that end shortly after it are handled together,
  so many short runs cost few transactions.
- When very many runs end, only the newest of them are indexed: most of the others are pruned before
  anybody searches. A search indexes what is missing.
- What fails is done by the next search and the next run.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.store.interfaces.run_log import RunLog

BATCH_SECONDS = 0.25
MAX_INDEXED = 20

_log = logging.getLogger("infloop.runs")


class Retention:
    """Keeps `history_limit` runs of each workflow; `on_pruned` is called when some were pruned."""

    def __init__(
        self, run_log: RunLog, history_limit: int, on_pruned: Callable[[], Awaitable[None]]
    ) -> None:
        self._run_log = run_log
        self._history_limit = history_limit
        self._on_pruned = on_pruned
        self._ended: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def run_ended(self, run_id: str, workflow_id: str) -> None:
        """Index a run that has ended, and prune its workflow, soon."""
        self._ended[run_id] = workflow_id
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Finish what is left to do."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        while self._ended:
            ended, self._ended = self._ended, {}
            try:
                await self._handle(ended)
            except Exception as error:  # noqa: BLE001  (the edge of a task: see above)
                _log.warning("ended runs are not pruned and indexed yet: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(BATCH_SECONDS):
                    await self._closing.wait()
        self._task = None

    async def _handle(self, ended: dict[str, str]) -> None:
        pruned = [
            await self._run_log.prune(workflow_id, self._history_limit)
            for workflow_id in set(ended.values())
        ]
        await self._run_log.index_runs(*[*ended][-MAX_INDEXED:])
        if any(pruned):
            await self._on_pruned()
