"""Runs as the API shows them: as a summary, in full, and the latest one as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.model.events import RunFinished
from infloop.model.messages import expand
from infloop.runtime.runs.taint_report import from_outside

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.service import RunService
    from infloop.store.base import RunRow
    from infloop.store.queue import QueueEntry

MOST_EVENTS = 5_000

IDLE: JsonObject = {"status": "idle", "iterationByLoopId": {}, "scope": {}, "events": []}


async def summary(service: RunService, row: RunRow) -> JsonObject:
    """Return a run without its scope and events."""
    shown: JsonObject = {
        "runId": row.id,
        "workflowId": row.workflow_id,
        "workflowName": row.workflow_name,
        "status": await service.status(row),
        "startedAt": row.started_at,
        "finishedAt": row.finished_at,
        "durationMs": None if row.finished_at is None else row.finished_at - row.started_at,
        "eventCount": row.events,
        "steps": row.steps,
        "failedStep": row.failed_step,
        "cause": msgspec.to_builtins(row.cause),
        "correlationId": row.correlation_id,
    }
    return shown | ({"errorMessage": row.error} if row.error else {})


async def in_full(service: RunService, run_id: str) -> JsonObject:
    """Return a run with its scope; one that goes on has the scope so far and where it is."""
    row = await service.journal.run(run_id)
    shown = await summary(service, row)
    shown["untrusted"] = [*await from_outside(service.journal, row)]
    glance = service.glance(run_id)
    if glance is not None and row.finished_at is None:
        return shown | {
            "scope": glance.scope,
            "currentNodeId": glance.nodes[-1] if glance.nodes else None,
            "openNodeIds": list(glance.nodes),
            "iterationByLoopId": dict(glance.rounds),
        }
    return shown | {"scope": await service.journal.scope(run_id) or {}}


def queued(entry: QueueEntry) -> JsonObject:
    """Return a run that waits in the queue, or left it without having begun."""
    return {
        "runId": entry.run.run_id,
        "workflowId": entry.run.workflow_id,
        "status": "queued" if entry.is_waiting else entry.state,
        "queueId": entry.run.id,
        "position": entry.position,
        "queuedAt": entry.run.queued_at,
        "reason": entry.reason,
        "cause": msgspec.to_builtins(entry.run.cause),
        "correlationId": entry.run.correlation_id,
    }


async def last_events(service: RunService, row: RunRow) -> list[JsonObject]:
    """Return the newest messages of a run, oldest first."""
    found: list[JsonObject] = []
    after = max(0, row.last_seq - MOST_EVENTS)
    while batch := await service.journal.events(row.id, after):
        for recorded in batch:
            found += expand(recorded)
            if isinstance(recorded.event, RunFinished):
                found[-1]["scope"] = await service.journal.scope(row.id) or {}
        after = batch[-1].seq
        del found[:-MOST_EVENTS]
    return found


async def latest_state(service: RunService) -> JsonObject:
    """Return the run that began last, with its newest events; a run that goes on comes first."""
    live = list(service.live())
    if live:
        row = await service.journal.run(live[-1])
    else:
        rows = await service.journal.runs(limit=1)
        if not rows:
            return IDLE
        row = rows[0]
    shown = await in_full(service, row.id)
    return {"iterationByLoopId": {}, **shown, "events": list(await last_events(service, row))}
