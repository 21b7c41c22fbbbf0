"""What is known of a run or its process: from the journal, and from the process's lock file.

A run is running only while the process that owns it is alive. The kernel releases the lock file
when a process dies, however it dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.store.interfaces.liveness import derive_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.store.interfaces.liveness import Liveness, RunStatus
    from infloop.store.interfaces.run_log import RunLog, RunRow


async def current_status(row: RunRow, liveness: Liveness) -> RunStatus:
    """Return a run's status; "running" only if its process is alive."""
    return (await current_statuses([row], liveness))[0]


async def current_statuses(rows: Sequence[RunRow], liveness: Liveness) -> list[RunStatus]:
    """Return the status of each run. All their processes are looked up at once."""
    owners = {row.owner for row in rows if row.status == "running"}
    states = await liveness.states(owners) if owners else {}
    return [
        derive_status("running", states[row.owner]) if row.status == "running" else row.status
        for row in rows
    ]


async def is_over(run_log: RunLog, run_id: str) -> bool:
    """Say whether a run has ended or was pruned; a paused run has not ended."""
    try:
        return (await run_log.run(run_id)).status not in ("running", "paused")
    except NotFound:
        return True


async def is_known(run_log: RunLog, run_id: str) -> bool:
    """Say whether the journal still has a run."""
    try:
        await run_log.run(run_id)
    except NotFound:
        return False
    return True


async def is_dead(liveness: Liveness, instance_id: str) -> bool:
    """Say whether a process is proved to be dead."""
    return await liveness.state(instance_id) == "dead"
