"""The status of a run, a list of runs, and cancelling one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import Field

from infloop.application.models import to_json
from infloop.application.runs.models import QueuedRun
from infloop.errors import Conflict, UsageError
from infloop.mcp_server.answers import with_untrusted
from infloop.mcp_server.tools import Arguments, utility
from infloop.model.values import compact_json

if TYPE_CHECKING:
    from infloop.application.runs.models import RunSummary
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject

MAX_LISTED = 100
MAX_OUTPUT_CHARACTERS = 20_000
"""How long outputs may be to be part of a status; longer ones are read page by page."""


# -- status ----------------------------------------------------------------------------------


class WhichRun(Arguments):
    """Which run is meant."""

    run_id: str = Field("", description="The run's id; or give a queueId.", max_length=200)
    queue_id: str = Field("", description="The id of its place in the queue.", max_length=200)
    workflow_id: str = Field(
        "", description="Alone: the newest run of this workflow.", max_length=200
    )


async def get_run_status(mcp: McpDependencies, given: WhichRun, _: Call) -> JsonObject:
    """Return a run's status: queued, running, paused, succeeded, failed, cancelled, interrupted.

    With its outputs once it is over. Without any argument: the newest run.
    """
    run_id = given.run_id or given.queue_id.removeprefix("q-")
    if not run_id:
        run_id = await mcp.application.history.newest_id(given.workflow_id)
    found = await mcp.application.history.summary(run_id)
    _refuse_another(found, given.workflow_id)
    return await status_of(mcp, found)


async def status_of(mcp: McpDependencies, found: RunSummary | QueuedRun) -> JsonObject:
    """Return a run as it is now."""
    status = to_json(found)
    if isinstance(found, QueuedRun):
        return status
    history = mcp.application.history
    if found.finished_at is None:
        progress = history.progress(found.run_id)
        return status | (to_json(progress) if progress else {})
    outputs = await history.outputs(found.run_id)
    text = await asyncio.to_thread(compact_json, outputs)
    if len(text) > MAX_OUTPUT_CHARACTERS:
        more: JsonObject = {
            "outputCharacters": len(text),
            "more": "infloop_read_result has them",
        }
        return with_untrusted({**status, **more}, "error", "errorMessage")
    return with_untrusted({**status, "outputs": outputs}, "error", "errorMessage", "outputs")


def _refuse_another(found: RunSummary | QueuedRun, workflow_id: str) -> None:
    if workflow_id and found.workflow_id != workflow_id:
        raise UsageError(f"this is a run of workflow {found.workflow_id!r}, not {workflow_id!r}")


# -- listing ---------------------------------------------------------------------------------


class WhichRuns(Arguments):
    """Which runs are listed."""

    workflow_id: str = Field("", description="Only runs of this workflow.", max_length=200)
    limit: int = Field(20, ge=1, le=MAX_LISTED)


async def list_runs(mcp: McpDependencies, given: WhichRuns, _: Call) -> JsonObject:
    """List runs, newest first, and triggers that were refused (`refused`).

    Runs that have not begun are in infloop_list_queue; `held` are those that cannot start.
    """
    page = await mcp.application.history.page(
        workflow_id=given.workflow_id or None, limit=given.limit
    )
    return with_untrusted(to_json(page), "runs", "held", "refused")


# -- cancelling ------------------------------------------------------------------------------


class WhichToCancel(Arguments):
    """Which run is cancelled."""

    run_id: str = Field(description="The run's id.", min_length=1, max_length=200)
    workflow_id: str = Field("", description="Its workflow, as a safeguard.")


async def cancel_run(mcp: McpDependencies, given: WhichToCancel, call: Call) -> JsonObject:
    """Stop a run, whichever process drives it. One that waits leaves the queue."""
    found = await mcp.application.history.summary(given.run_id)
    _refuse_another(found, given.workflow_id)
    try:
        done = await mcp.application.runs.cancel(given.run_id, call.caller)
    except Conflict as conflict:
        return {"cancelled": False, "runId": given.run_id, "reason": str(conflict)}
    return {"cancelled": True, **to_json(done)}


GET_RUN_STATUS = utility(
    "get_run_status", "Status of a run", WhichRun, get_run_status, reads_only=True
)
LIST_RUNS = utility("list_runs", "Runs", WhichRuns, list_runs, reads_only=True)
CANCEL_RUN = utility("cancel_run", "Stop a run", WhichToCancel, cancel_run)
