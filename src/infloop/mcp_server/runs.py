"""How a run is, which there are, and stopping one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from pydantic import Field

from infloop.errors import UsageError
from infloop.mcp_server.answers import with_untrusted
from infloop.mcp_server.tools import Arguments, utility
from infloop.model.values import compact_json
from infloop.runtime.runs.dispatch import queue_id
from infloop.store.queue import QueueEntry

if TYPE_CHECKING:
    from infloop.mcp_server.dependencies import McpParts
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject
    from infloop.store.base import RunRow

MOST_LISTED = 100
MOST_OUTPUT_CHARACTERS = 20_000
"""How long outputs may be to stand in a status; longer ones are read page by page."""

_NOT_OUTPUTS = ("inputs", "__inputs", "globals")
_OVER = ("succeeded", "failed", "cancelled")


# -- status ----------------------------------------------------------------------------------


class WhichRun(Arguments):
    """Which run is meant."""

    run_id: str = Field("", description="The run's id; or give a queueId.", max_length=200)
    queue_id: str = Field("", description="The id of its place in the queue.", max_length=200)
    workflow_id: str = Field(
        "", description="Alone: the newest run of this workflow.", max_length=200
    )


async def get_run_status(parts: McpParts, given: WhichRun, _: Call) -> JsonObject:
    """Tell how a run is: queued, running, paused, succeeded, failed, cancelled, interrupted.

    With its outputs once it is over. Without any argument: the newest run.
    """
    if given.run_id or given.queue_id:
        found = await parts.dispatcher.find(given.run_id or given.queue_id.removeprefix("q-"))
    else:
        found = await _newest(parts, given.workflow_id)
    _refuse_another(found, given.workflow_id)
    return await status_of(parts, found)


async def _newest(parts: McpParts, workflow_id: str) -> RunRow | QueueEntry:
    """Return the run that was asked for last; what waits comes after all that have begun."""
    waiting = [
        entry
        for entry in await parts.dispatcher.queue.entries()
        if workflow_id in ("", entry.run.workflow_id)
    ]
    if waiting:
        return max(waiting, key=lambda entry: entry.run.queued_at)
    rows = await parts.service.journal.runs(workflow_id=workflow_id or None, limit=1)
    if not rows:
        raise UsageError("there is no run yet; call the tool of a workflow to start one")
    return rows[0]


async def status_of(parts: McpParts, found: RunRow | QueueEntry) -> JsonObject:
    """Return a run as it is now."""
    if isinstance(found, QueueEntry):
        return _waiting(found)
    shown = await _summary(parts, found)
    glance = parts.service.glance(found.id)
    if glance is not None and found.finished_at is None:
        return shown | {"openNodes": list(glance.nodes), "rounds": dict(glance.rounds)}
    if found.finished_at is None:
        return shown
    outputs = await outputs_of(parts, found.id)
    text = await asyncio.to_thread(compact_json, outputs)
    if len(text) > MOST_OUTPUT_CHARACTERS:
        return shown | {"outputCharacters": len(text), "more": "infloop_read_result has them"}
    return with_untrusted({**shown, "outputs": outputs}, "error", "outputs")


async def outputs_of(parts: McpParts, run_id: str) -> JsonObject:
    """Return what the steps of a run that is over returned, by node."""
    scope = await parts.service.journal.scope(run_id) or {}
    return {name: value for name, value in scope.items() if name not in _NOT_OUTPUTS}


def _waiting(entry: QueueEntry) -> JsonObject:
    shown: JsonObject = {
        "status": "queued" if entry.is_waiting else entry.state,
        "runId": entry.run.run_id,
        "queueId": entry.run.id,
        "workflowId": entry.run.workflow_id,
        "position": entry.position,
    }
    return shown | ({"reason": entry.reason} if entry.reason else {})


async def _summary(parts: McpParts, row: RunRow) -> JsonObject:
    shown: JsonObject = {
        "status": await parts.service.status(row),
        "runId": row.id,
        "queueId": queue_id(row.id),
        "workflowId": row.workflow_id,
        "workflowName": row.workflow_name,
        "startedAt": row.started_at,
        "finishedAt": row.finished_at,
        "durationMs": None if row.finished_at is None else row.finished_at - row.started_at,
        "steps": row.steps,
        "cause": msgspec.to_builtins(row.cause),
        "correlationId": row.correlation_id,
    }
    if row.failed_step:
        shown["failedStep"] = row.failed_step
    return with_untrusted(shown | ({"error": row.error} if row.error else {}), "error")


def _refuse_another(found: RunRow | QueueEntry, workflow_id: str) -> None:
    run = found.run if isinstance(found, QueueEntry) else found
    if workflow_id and run.workflow_id != workflow_id:
        raise UsageError(f"this is a run of workflow {run.workflow_id!r}, not {workflow_id!r}")


# -- listing ---------------------------------------------------------------------------------


class WhichRuns(Arguments):
    """Which runs are listed."""

    workflow_id: str = Field("", description="Only runs of this workflow.", max_length=200)
    limit: int = Field(20, ge=1, le=MOST_LISTED)


async def list_runs(parts: McpParts, given: WhichRuns, _: Call) -> JsonObject:
    """List runs, the newest first. Those that have not begun are in infloop_list_queue."""
    rows = await parts.service.journal.runs(
        workflow_id=given.workflow_id or None, limit=given.limit
    )
    return with_untrusted({"runs": [await _summary(parts, row) for row in rows]}, "runs")


# -- stopping --------------------------------------------------------------------------------


class WhichToCancel(Arguments):
    """Which run is stopped."""

    run_id: str = Field(description="The run's id.", min_length=1, max_length=200)
    workflow_id: str = Field("", description="Its workflow, if that is to be made sure.")


async def cancel_run(parts: McpParts, given: WhichToCancel, call: Call) -> JsonObject:
    """Stop a run, whichever process drives it. One that waits leaves the queue."""
    found = await parts.dispatcher.find(given.run_id)
    _refuse_another(found, given.workflow_id)
    caller, run_id = call.caller, given.run_id
    if isinstance(found, QueueEntry):
        await parts.audit.record(
            "queue.removed", caller.actor, correlation_id=caller.correlation_id, run_id=run_id
        )
        removed = await parts.dispatcher.remove(found.run.id)
        why: JsonObject = {} if removed else {"reason": f"it does not wait: it is {found.state}"}
        return {"cancelled": removed, "runId": run_id, **why}
    status = await parts.service.status(found)
    if status in _OVER:
        return {"cancelled": False, "runId": run_id, "reason": f"it has {status} already"}
    await parts.audit.record(
        "run.stopped", caller.actor, correlation_id=caller.correlation_id, run_id=run_id
    )
    await parts.service.cancel(found, "stopped over MCP")
    return {"cancelled": True, "runId": run_id}


GET_RUN_STATUS = utility(
    "get_run_status", "How a run is", WhichRun, get_run_status, reads_only=True
)
LIST_RUNS = utility("list_runs", "Runs", WhichRuns, list_runs, reads_only=True)
CANCEL_RUN = utility("cancel_run", "Stop a run", WhichToCancel, cancel_run)
