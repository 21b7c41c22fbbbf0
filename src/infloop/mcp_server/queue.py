"""The queue: which runs wait, and taking one out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from infloop.application.models import to_json
from infloop.errors import NotFound
from infloop.mcp_server.tools import Arguments, Nothing, utility

if TYPE_CHECKING:
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject

MAX_LISTED = 200


async def list_queue(mcp: McpDependencies, _: Nothing, __: Call) -> JsonObject:
    """List the runs that wait for their turn; `held` says why none begins at the moment."""
    found = await mcp.application.queue.all(limit=MAX_LISTED)
    return to_json(found.without_credentials())


class WhichEntry(Arguments):
    """Which entry is meant."""

    queue_id: str = Field(description="As returned when the run was started.", max_length=200)


async def remove_from_queue(mcp: McpDependencies, given: WhichEntry, call: Call) -> JsonObject:
    """Take a waiting run out of the queue, so that it never begins."""
    try:
        await mcp.application.queue.remove(given.queue_id, call.caller)
    except NotFound as error:
        return {"removed": False, "queueId": given.queue_id, "reason": str(error)}
    return {"removed": True, "queueId": given.queue_id}


LIST_QUEUE = utility("list_queue", "The queue", Nothing, list_queue, reads_only=True)
REMOVE_FROM_QUEUE = utility(
    "remove_from_queue", "Take out of the queue", WhichEntry, remove_from_queue
)
