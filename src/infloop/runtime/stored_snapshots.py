"""Snapshots of runs in fetched repositories, in the store: any machine can show and continue them.

A run that works in a directory of its machine keeps its snapshots there. A run whose workspace is a
repository stores each snapshot before the journal names it, as a pack of what changed since its
start commit. Another machine fetches that commit itself and imports the packs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import InfloopError, StepError
from infloop.runtime.timeline import workspace_history
from infloop.workspace.repositories.packs import import_packs, missing_snapshots

if TYPE_CHECKING:
    from infloop.runtime.timeline import WorkspaceHistory
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.interfaces.results import RunResults
    from infloop.store.interfaces.run_log import RunLog


class StoredSnapshots:
    """Brings the snapshots of runs to this machine."""

    def __init__(self, workspaces: Workspaces, run_log: RunLog, results: RunResults) -> None:
        self._workspaces = workspaces
        self._run_log = run_log
        self.results = results

    async def bring(self, run_id: str) -> WorkspaceHistory | None:
        """Import what this machine lacks of a run's snapshots; return the run's history.

        None if the run's workspace is no repository. Raises StepError if they cannot be imported.
        """
        history = await workspace_history(self._run_log, run_id)
        if history is None or history.fetched is None:
            return history
        store = self._workspaces.store
        if not await missing_snapshots(store, history.snapshots):
            return history
        packs = await self.results.packs(run_id)
        if packs:
            source, commit = history.source, history.fetched.commit
            try:
                mirror = (await self._workspaces.mirrors.fetch(source.repository, commit)).mirror
                data = [await self.results.read(run_id, each) for each in packs]
                wanted = [*history.snapshots, *history.others]
                await import_packs(store, mirror, commit, data, wanted, run_id)
            except InfloopError as error:
                raise StepError(
                    f"the files of run {run_id!r} cannot be brought to this machine: {error}"
                ) from None
        return history
