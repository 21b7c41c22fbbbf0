"""A run that this process drives, for somebody who watches it to its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from infloop.application.runs.labels import Labels
from infloop.application.runs.replay import read_cost, view_from_checkpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.application.runs.models import StartedRun
    from infloop.application.runs.view import RunView
    from infloop.model.approval import Approval
    from infloop.model.events import Recorded, RunFinished
    from infloop.runtime.runs.service import RunService


class LoadedView(msgspec.Struct, frozen=True):
    """A run at the moment it started here; apply its events to `view`."""

    view: RunView
    labels: Labels
    workflow_name: str
    started_at: int


class WatchedRun:
    """Follows a run of this process.

    Create it as soon as the run has started: then its outcome is known, however soon it ends.
    """

    def __init__(self, service: RunService, started: StartedRun) -> None:
        self.run_id = started.run_id
        self._service = service
        self._after_seq = started.after_seq
        self._outcome = asyncio.create_task(service.wait(started.run_id))

    async def load(self) -> LoadedView:
        """Return the run as it was when it started here."""
        run_log = self._service.store.run_log
        loaded = await run_log.load(self.run_id, until_seq=self._after_seq)
        labels = Labels(loaded.definition)
        view = await view_from_checkpoint(run_log, loaded, labels)
        return LoadedView(view, labels, loaded.run.workflow_name, loaded.run.started_at)

    async def events(self) -> AsyncIterator[list[Recorded]]:
        """Yield what happens after the start, in batches, to the end of the run."""
        async for batch in self._service.listen(self.run_id, self._after_seq):
            yield batch

    async def outcome(self) -> RunFinished:
        return await self._outcome

    @property
    def is_over(self) -> bool:
        return self._outcome.done()

    async def stop(self, reason: str) -> None:
        """Ask the run to stop; `outcome` returns when it has."""
        await self._service.stop(self.run_id, reason)

    async def read_cost(self, view: RunView) -> None:
        """Set in the view what the run has cost so far."""
        await read_cost(self._service.store.ledger, self.run_id, view)

    def open_approvals(self) -> list[Approval]:
        """Return the questions of this run that wait for a person."""
        approvals = self._service.approvals
        return approvals.open_for_run(self.run_id) if approvals else []
