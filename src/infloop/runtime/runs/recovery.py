"""Runs whose process died: found by evidence, and recorded as what they are.

A run is running only while the process that owns it lives; that is proved by a lock file which the
kernel lets go of at the process's death, however it died.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import Fenced, NotFound
from infloop.model.events import Recorded, RunFinished
from infloop.store.interfaces.liveness import derive_status

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.model.clock import Clock
    from infloop.store.interfaces.liveness import Liveness, RunStatus
    from infloop.store.interfaces.run_log import RunLog, RunRow


async def shown_status(row: RunRow, liveness: Liveness) -> RunStatus:
    """Return what a run is, by evidence: `running` only if its process lives."""
    if row.status != "running":
        return row.status
    return derive_status(row.status, await liveness.state(row.owner))


async def interrupted_runs(run_log: RunLog, liveness: Liveness) -> list[RunRow]:
    """Return the runs that say they are running and whose process is dead, oldest first."""
    found: list[RunRow] = []
    before = None
    while page := await run_log.runs(status="running", limit=200, before=before):
        found += [row for row in page if await liveness.state(row.owner) == "dead"]
        before = page[-1].cursor
    return found[::-1]


async def wants_resume(run_log: RunLog, row: RunRow) -> bool:
    """Say whether the run's workflow asks to be resumed after a crash."""
    from infloop.engine.graph import decode_definition  # not needed by who only asks for a status

    loaded = await run_log.load(row.id, until_seq=0)
    definition = decode_definition(loaded.definition)
    return bool(definition.workflows[definition.root].get("onCrash") == "resume")


async def is_over(run_log: RunLog, run_id: str) -> bool:
    """Say whether a run has settled, or is forgotten; one that paused goes on."""
    try:
        return (await run_log.run(run_id)).status not in ("running", "paused")
    except NotFound:
        return True


async def is_known(run_log: RunLog, run_id: str) -> bool:
    """Say whether a run is not forgotten."""
    try:
        await run_log.run(run_id)
    except NotFound:
        return False
    return True


async def is_dead(liveness: Liveness, instance_id: str) -> bool:
    """Say whether a process that owned runs is proved to be dead."""
    return await liveness.state(instance_id) == "dead"


class Recovered(NamedTuple):
    """The ids of runs whose process had died, and what was done about what they left behind."""

    failed: list[str]
    resumable: list[str]
    files: list[str]


async def end_left_behind(directory: Path, liveness: Liveness) -> list[str]:
    """End what children of dead processes left running; return a line for each such child."""
    from infloop.sandbox.keepers.child_records import (
        sweep,  # not needed by who only asks for a status
    )

    lines = []
    for child in await sweep(directory, partial(is_dead, liveness)):
        left = f"run {child.run_id[:8]}, step {child.step}: processes left running by a crash"
        stuck = f"; {child.alive} of them could not be ended, the next start tries again"
        lines.append(f"{left}: {child.processes}{stuck if child.alive else ', ended'}")
    return lines


async def reconcile(
    run_log: RunLog, liveness: Liveness, owner: str, clock: Clock, gap: int
) -> Recovered:
    """Record interrupted runs as failed, except those whose workflow asks to be resumed."""
    found = Recovered([], [], [])
    for row in await interrupted_runs(run_log, liveness):
        if await wants_resume(run_log, row):
            found.resumable.append(row.id)
            continue
        try:
            ownership = await run_log.take_over(row.id, owner, expect_dead=row.owner)
        except Fenced:
            continue  # somebody else was quicker
        event = RunFinished(
            "failed",
            "interrupted: the process that ran it ended without finishing it; "
            f"`infloop resume {row.id}` goes on where it was",
            interrupted=True,
        )
        seq = ownership.last_seq + gap
        await run_log.append(
            row.id,
            ownership.epoch,
            [Recorded(row.id, seq, clock.now_ms(), row.correlation_id, event)],
        )
        found.failed.append(row.id)
    return found
