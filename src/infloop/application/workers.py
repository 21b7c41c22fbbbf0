"""The processes that drive runs, and which of them can take a queued run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.policy.placement import why_nobody_takes
from infloop.store.interfaces.liveness import OwnerState, ProcessKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.application.resources import Resources
    from infloop.store.interfaces.queue import QueueEntry

PAGE = 200


class Worker(Model, kw_only=True):
    """A process that drives runs: a server, a worker, an MCP server, or one `infloop run`.

    It takes queued runs that require no other labels than its own, as long as fewer than `capacity`
    are live. It is `frozen` if it exists and gives no sign of life, and `dead` if it ended without
    settling its runs.
    """

    id: str
    kind: ProcessKind
    state: OwnerState
    host: str
    pid: int
    labels: list[str]
    capacity: int
    live_runs: int
    started_at: int
    heartbeat_at: int


class WorkerList(Model, kw_only=True):
    """All processes that drive runs, oldest first."""

    workers: list[Worker]


class Workers:
    """Asks the store which processes there are."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def all(self) -> WorkerList:
        liveness = self._resources.store.liveness
        rows = await liveness.instances()
        states = await liveness.states([row.id for row in rows])
        live = await self._live_runs()
        return WorkerList(
            workers=[
                Worker(
                    id=row.id,
                    kind=row.kind,
                    state=states[row.id],
                    host=row.host,
                    pid=row.pid,
                    labels=list(row.labels),
                    capacity=row.capacity,
                    live_runs=live[row.id],
                    started_at=row.started_at,
                    heartbeat_at=row.heartbeat_at,
                )
                for row in rows
            ]
        )

    async def _live_runs(self) -> Counter[str]:
        """Return how many runs each process owns."""
        run_log, before = self._resources.store.run_log, None
        owned: Counter[str] = Counter()
        while page := await run_log.runs(status="running", limit=PAGE, before=before):
            owned.update(row.owner for row in page)
            before = page[-1].cursor
        return owned

    async def why_waiting(self, entries: Sequence[QueueEntry]) -> dict[str, str]:
        """Return by id why no live process takes an entry that waits; others are left out."""
        waiting = [entry.run for entry in entries if entry.state == "waiting" and not entry.held]
        if not waiting:
            return {}
        liveness = self._resources.store.liveness
        rows = await liveness.instances()
        states = await liveness.states([row.id for row in rows])
        alive = [row for row in rows if row.capacity and states[row.id] == "alive"]
        reasons: dict[str, str] = {}
        for run in waiting:
            # An MCP server takes only what its own client asked for.
            kinds = ("serve", "worker", run.cause.kind)
            takers = [row.labels for row in alive if row.kind in kinds]
            if reason := why_nobody_takes(run.requires, takers):
                reasons[run.id] = reason
        return reasons
