"""Opens the configured servers and has their tools."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infloop.sandbox.base import ChildRequest
from infloop.tools.base import Tool, ToolFamily
from infloop.tools.mcp.connection import Connection
from infloop.tools.mcp.definitions import ToolText, tool_texts
from infloop.tools.mcp.http import http_streams
from infloop.tools.mcp.stdio import program_streams
from infloop.tools.mcp.streams import ServerFailed
from infloop.tools.mcp.tool import mcp_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infloop.model.agent_config import McpServer
    from infloop.sandbox.base import Sandbox
    from infloop.tools.http_requests import ToolRequests
    from infloop.tools.mcp.known_tools import KnownTools
    from infloop.tools.mcp.streams import OpenStreams

START_S, CALL_S = 60.0, 120.0


@dataclass(frozen=True, slots=True)
class McpHost:
    """What servers are given.

    sandbox        where programs run
    cwd            their working directory
    environment    makes their environment from the names that a server's table has
    requests       how servers with an address are reached
    variables      the operator's own variables, for tokens of such servers
    known          which definitions of tools were used before
    allow_private  whether a server's address may be private: the operator's setting
    """

    sandbox: Sandbox
    cwd: str
    environment: Callable[[Sequence[str]], Mapping[str, str]]
    requests: ToolRequests
    known: KnownTools
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_private: bool = False
    start_s: float = START_S
    call_s: float = CALL_S


class McpTools(ToolFamily):
    """The tools of all servers; `problems` says, for a person, what could not be used."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._tools: list[Tool[Any]] = []
        self._connections: list[Connection] = []

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        return tuple(self._tools)

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    async def add(self, name: str, server: McpServer, host: McpHost) -> None:
        """Open a server and add its tools, or a problem."""
        if server.token_env and not host.variables.get(server.token_env):
            self.problems.append(f"MCP server {name}: the variable {server.token_env} is not set")
            return
        connection = Connection(
            _open_streams(name, server, host), start_s=host.start_s, call_s=host.call_s
        )
        self._connections.append(connection)
        try:
            raws = await connection.start()
        except ServerFailed as error:
            await connection.close()
            self.problems.append(f"MCP server {name}: {error}")
            return
        for text in tool_texts(name, raws):
            if isinstance(text, ToolText):
                unconfined = not (server.url or host.sandbox.confines)
                tool = mcp_tool(text)
                self._tools.append(
                    tool(name, server.url, connection, host.known, unconfined=unconfined)
                )
            else:
                self.problems.append(f"MCP server {name}, tool {text[0]!r}: {text[1]}")


async def open_mcp_tools(servers: Mapping[str, McpServer], host: McpHost) -> McpTools:
    """Open all servers at once. The caller closes what this returns."""
    family = McpTools()
    try:
        async with asyncio.TaskGroup() as tasks:
            for name, server in servers.items():
                tasks.create_task(family.add(name, server, host))
    except BaseException:
        await family.close()
        raise
    return family


def _open_streams(name: str, server: McpServer, host: McpHost) -> OpenStreams:
    if server.url:
        token = host.variables.get(server.token_env, "")
        return lambda: http_streams(
            host.requests,
            f"mcp_{name}",
            server.url,
            token=token,
            timeout_s=host.call_s,
            private_ok=host.allow_private,
        )
    child = ChildRequest(
        argv=(server.command, *server.args), cwd=host.cwd, env=host.environment(server.env)
    )
    return lambda: program_streams(host.sandbox, child)
