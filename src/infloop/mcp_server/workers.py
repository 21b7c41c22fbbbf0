"""The processes that drive runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.models import to_json
from infloop.mcp_server.tools import Nothing, utility

if TYPE_CHECKING:
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject


async def list_workers(mcp: McpDependencies, _: Nothing, __: Call) -> JsonObject:
    """List the servers, workers and other processes that drive runs, with their labels and load.

    `frozen` is one that exists and gives no sign of life; `dead` is one that ended without settling
    its runs.
    """
    return to_json(await mcp.application.workers.all())


LIST_WORKERS = utility("list_workers", "Workers", Nothing, list_workers, reads_only=True)
