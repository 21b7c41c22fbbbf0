"""All tools: one per workflow, then our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import UsageError
from infloop.mcp_server.approvals import LIST_APPROVALS
from infloop.mcp_server.dev_loops import LIST_PROCESSES, READ_PROCESS_LOG, RESTART_PROCESS
from infloop.mcp_server.queue import LIST_QUEUE, REMOVE_FROM_QUEUE
from infloop.mcp_server.results import READ_DIFF, READ_RESULT
from infloop.mcp_server.runs import CANCEL_RUN, GET_RUN_STATUS, LIST_RUNS
from infloop.mcp_server.tools import OLD_PREFIXES, PREFIX
from infloop.mcp_server.waiting import WAIT_FOR_RUN
from infloop.mcp_server.workers import LIST_WORKERS
from infloop.mcp_server.workflows import find_workflow_tool, workflow_tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Tool

UTILITIES: tuple[Tool, ...] = (
    GET_RUN_STATUS,
    WAIT_FOR_RUN,
    READ_RESULT,
    READ_DIFF,
    LIST_RUNS,
    CANCEL_RUN,
    LIST_QUEUE,
    REMOVE_FROM_QUEUE,
    LIST_WORKERS,
    LIST_APPROVALS,
    LIST_PROCESSES,
    READ_PROCESS_LOG,
    RESTART_PROCESS,
)

_BY_NAME: Mapping[str, Tool] = {
    prefix + tool.name.removeprefix(PREFIX): tool
    for tool in UTILITIES
    for prefix in (PREFIX, *OLD_PREFIXES)
}


async def all_tools(mcp: McpDependencies) -> list[Tool]:
    return [*await workflow_tools(mcp, _BY_NAME), *UTILITIES]


async def find_tool(mcp: McpDependencies, name: str) -> Tool:
    """Return the tool of that name; raise UsageError with what there is."""
    found = _BY_NAME.get(name) or await find_workflow_tool(mcp, name, _BY_NAME)
    if found is None:
        names = ", ".join(tool.name for tool in (await all_tools(mcp))[:50])
        raise UsageError(f"there is no tool {name[:80]!r}; there are: {names}")
    return found
