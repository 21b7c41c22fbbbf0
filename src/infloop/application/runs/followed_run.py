"""A run that another process drives, for somebody who watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.runs.labels import Labels
from infloop.application.runs.replay import read_cost, view_from_checkpoint
from infloop.application.runs.watched_run import LoadedView
from infloop.model.events import RunFinished
from infloop.runtime.runs.following import follow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.application.runs.view import RunView
    from infloop.model.approval import Approval
    from infloop.model.events import Recorded
    from infloop.store.interfaces.store import Store

DIED = "its process died; `infloop resume` continues where it stopped"


class FollowedRun:
    """Follows a run by what is stored of it. Leaving it does not stop it."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.run_id = run_id
        self._store = store
        self._after_seq = 0
        self._finished: RunFinished | None = None

    async def load(self) -> LoadedView:
        """Return the run as it is now."""
        loaded = await self._store.run_log.load(self.run_id)
        labels = Labels(loaded.definition)
        view = await view_from_checkpoint(self._store.run_log, loaded, labels)
        self._finished = view.finished
        self._after_seq = loaded.run.last_seq
        return LoadedView(view, labels, loaded.run.workflow_name, loaded.run.started_at)

    async def events(self) -> AsyncIterator[list[Recorded]]:
        """Yield what happens from now on, in batches, until the run ends or its process dies."""
        async for batch in follow(self._store, self.run_id, self._after_seq):
            for item in batch:
                if isinstance(item.event, RunFinished):
                    self._finished = item.event
            yield batch

    async def outcome(self) -> RunFinished:
        return self._finished or RunFinished("failed", DIED, interrupted=True)

    @property
    def is_over(self) -> bool:
        return self._finished is not None

    async def stop(self, reason: str) -> None:
        """Do nothing: `infloop cancel` stops a run of another process."""

    async def read_cost(self, view: RunView) -> None:
        """Set in the view what the run has cost so far."""
        await read_cost(self._store.ledger, self.run_id, view)

    def open_approvals(self) -> list[Approval]:
        return []
