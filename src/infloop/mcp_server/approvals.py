"""What waits for a person.

It is listed here and answered elsewhere: no model answers what a person is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.approvals import answer_hint
from infloop.application.models import to_json
from infloop.mcp_server.answers import with_untrusted
from infloop.mcp_server.tools import Nothing, utility

if TYPE_CHECKING:
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Call
    from infloop.model.approval import Approval
    from infloop.model.values import JsonObject, JsonValue

MOST_LISTED = 100


async def list_approvals(mcp: McpDependencies, _: Nothing, __: Call) -> JsonObject:
    """List what waits for a person's answer, the oldest first.

    Only a person can answer it; `answer` says how, so tell them.
    """
    waiting = (await mcp.application.approvals.all()).approvals
    items: list[JsonValue] = [_item(approval) for approval in waiting[:MOST_LISTED]]
    return with_untrusted({"size": len(waiting), "approvals": items}, "approvals")


def _item(approval: Approval) -> JsonObject:
    return {**to_json(approval), "answer": answer_hint(approval)}


LIST_APPROVALS = utility(
    "list_approvals", "What waits for a person", Nothing, list_approvals, reads_only=True
)
