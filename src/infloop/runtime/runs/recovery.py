"""Recovers after crashes: settles what dead processes left behind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from infloop.engine.graph import decode_definition
from infloop.errors import Fenced
from infloop.model.events import Recorded, RunFinished
from infloop.runtime.runs.replay import SEQ_GAP
from infloop.runtime.runs.run_status import is_dead, is_over
from infloop.runtime.spending.ledger import abandon_dead_calls
from infloop.sandbox.keepers.child_records import sweep
from infloop.store.interfaces.liveness import dead_owners
from infloop.store.interfaces.queue import requeue_from_dead_owners

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.runtime.runs.shared import SharedResources
    from infloop.store.interfaces.liveness import Liveness
    from infloop.store.interfaces.run_log import RunLog, RunRow


class Recovered(NamedTuple):
    """The ids of runs whose process had died, and messages about what else was left behind."""

    failed: list[str]
    resumable: list[str]
    messages: list[str]


async def recover(shared: SharedResources) -> Recovered:
    """Record runs whose process died as failed, except those whose workflow asks to be resumed.

    Several processes may do this at the same time: each run is settled by one of them. Orphaned
    children are ended first. The worktrees of failed runs are saved and removed; a run that is
    resumed gets them back.
    """
    dependencies, store = shared.dependencies, shared.store
    run_is_over = partial(is_over, store.run_log)
    messages = []
    if dependencies.child_records:
        messages += await end_orphans(dependencies.child_records.directory, store.liveness)
    if dependencies.markers:
        await dependencies.markers.clear(partial(is_dead, store.liveness))
    await abandon_dead_calls(store.ledger, store.liveness, shared.clock)
    await requeue_from_dead_owners(store.queue, store.liveness)
    failed, resumable = await _settle_interrupted(shared)
    if dependencies.approvals is not None:
        await dependencies.approvals.settle_abandoned()
    if dependencies.workspaces is not None:
        messages += await dependencies.workspaces.recover(run_is_over)
    if dependencies.homes:
        await dependencies.homes.recover(run_is_over)
    await store.liveness.sweep()
    return Recovered(failed, resumable, messages)


async def end_orphans(directory: Path, liveness: Liveness) -> list[str]:
    """End what children of dead processes left running; return a line for each such child."""
    lines = []
    for child in await sweep(directory, partial(is_dead, liveness)):
        left = f"run {child.run_id[:8]}, step {child.step}: processes left running by a crash"
        stuck = f"; {child.alive} of them could not be ended, the next start tries again"
        lines.append(f"{left}: {child.processes}{stuck if child.alive else ', ended'}")
    return lines


async def wants_resume(run_log: RunLog, row: RunRow) -> bool:
    """Say whether the run's workflow asks to be resumed after a crash."""
    loaded = await run_log.load(row.id, until_seq=0)
    definition = decode_definition(loaded.definition)
    return bool(definition.workflows[definition.root].get("onCrash") == "resume")


async def _settle_interrupted(shared: SharedResources) -> tuple[list[str], list[str]]:
    """Record interrupted runs as failed; return them, and those that are to be resumed."""
    run_log = shared.store.run_log
    failed: list[str] = []
    resumable: list[str] = []
    interrupted = await _interrupted_runs(shared)
    shared.dropped.intersection_update([row.id for row in interrupted])
    for row in interrupted:
        if await wants_resume(run_log, row):
            resumable.append(row.id)
            continue
        try:
            ownership = await run_log.take_over(
                row.id, shared.instance.id, expect_dead=row.owner, expect_status="running"
            )
        except Fenced:
            continue  # another process took it over first, or its own settled it after all
        why = "the process that ran it ended without finishing it"
        if row.id in shared.dropped:
            why = "this process could not go on with it"
        event = RunFinished(
            "failed",
            f"interrupted: {why}; `infloop resume {row.id}` goes on where it was",
            interrupted=True,
        )
        seq, now = ownership.last_seq + SEQ_GAP, shared.clock.now_ms()
        last = Recorded(row.id, seq, now, row.correlation_id, event)
        await run_log.append(row.id, ownership.epoch, [last])
        shared.dropped.discard(row.id)
        shared.audit.note("run.recovered", row, outcome="failed")
        shared.notifications.run_ended(row.id)
        failed.append(row.id)
    return failed, resumable


async def _interrupted_runs(shared: SharedResources) -> list[RunRow]:
    """Return the runs that are stored as running and that no process drives, oldest first.

    Their process is dead, or it is this one and the store failed.
    """
    run_log, liveness = shared.store.run_log, shared.store.liveness
    found: list[RunRow] = []
    before = None
    while page := await run_log.runs(status="running", limit=200, before=before):
        dead = await dead_owners(liveness, [row.owner for row in page])
        own = [row.id for row in page if row.owner == shared.instance.id]
        dropped = shared.dropped.intersection(own)
        found += [row for row in page if row.owner in dead or row.id in dropped]
        before = page[-1].cursor
    return found[::-1]
