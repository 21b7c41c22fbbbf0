"""What waits for its turn, and taking it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from infloop.errors import NotFound
from infloop.mcp_server.tools import Arguments, Nothing, utility

if TYPE_CHECKING:
    from infloop.mcp_server.dependencies import McpParts
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject
    from infloop.store.queue import QueueEntry

MOST_LISTED = 200


async def list_queue(parts: McpParts, _: Nothing, __: Call) -> JsonObject:
    """List the runs that wait for their turn; `held` says why none begins at the moment."""
    queue = parts.dispatcher.queue
    entries = await queue.entries(limit=MOST_LISTED)
    return {
        "size": await queue.count(),
        "items": [_item(entry) for entry in entries],
        "held": parts.dispatcher.held,
    }


def _item(entry: QueueEntry) -> JsonObject:
    return {
        "queueId": entry.run.id,
        "runId": entry.run.run_id,
        "workflowId": entry.run.workflow_id,
        "triggerId": entry.run.extra.get("triggerId", "") if entry.run.cause.kind == "mcp" else "",
        "cause": entry.run.cause.kind,
        "receivedAt": entry.run.queued_at,
        "position": entry.position,
        "state": entry.state,
    }


class WhichEntry(Arguments):
    """Which entry is meant."""

    queue_id: str = Field(description="As returned when the run was started.", max_length=200)


async def remove_from_queue(parts: McpParts, given: WhichEntry, call: Call) -> JsonObject:
    """Take a waiting run out of the queue, so that it never begins."""
    try:
        entry = await parts.dispatcher.queue.entry(given.queue_id)
    except NotFound as error:
        return {"removed": False, "reason": str(error)}
    await parts.audit.record(
        "queue.removed",
        call.caller.actor,
        correlation_id=call.caller.correlation_id,
        run_id=entry.run.run_id,
    )
    removed = await parts.dispatcher.remove(given.queue_id)
    why: JsonObject = {} if removed else {"reason": f"it does not wait: it is {entry.state}"}
    return {"removed": removed, "queueId": given.queue_id, **why}


LIST_QUEUE = utility("list_queue", "The queue", Nothing, list_queue, reads_only=True)
REMOVE_FROM_QUEUE = utility(
    "remove_from_queue", "Take out of the queue", WhichEntry, remove_from_queue
)
