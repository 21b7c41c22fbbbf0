"""MCP over HTTP, at an address of the web server, behind its guards.

Each request is independent, in every protocol version: all of its tasks end with it, so a client
that disconnects leaves nothing behind. A client that accepts an event stream gets one, with
progress; any other gets one JSON document.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from infloop.errors import UsageError
from infloop.mcp_server.messages import read_message, unreadable
from infloop.model.reading import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.lowlevel.server import Server
    from starlette.types import Message, Receive, Scope, Send

    from infloop.application.caller import Caller
    from infloop.mcp_server.dependencies import McpDependencies


class McpAddress:
    """An ASGI application for POST requests; `caller` returns who sent one."""

    def __init__(self, mcp: McpDependencies, caller: Callable[[Scope], Caller]) -> None:
        self._mcp = mcp
        self._caller = caller
        self._made: Server[Any] | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).body()
            read_message(body)
        except ClientDisconnect:
            return
        except UsageError as error:
            await JSONResponse(unreadable(error), 400)(scope, receive, send)
            return
        server = await self._server()
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # One for each request: its tasks end with the request, and there are no sessions.
        manager = StreamableHTTPSessionManager(
            server,
            stateless=True,
            json_response=not _wants_stream(scope),
            max_request_body_size=MAX_FILE_BYTES,
        )
        async with manager.run(), anyio.create_task_group() as group:
            if manager.json_response:  # a stream notices a disconnect itself
                group.start_soon(_end_when_gone, receive, group.cancel_scope)
            await manager.handle_request(scope, _replay(body, receive), send)
            group.cancel_scope.cancel()

    async def _server(self) -> Server[Any]:
        """Return the server, built in a thread for the first client."""
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
            return self._made

    def _make(self) -> Server[Any]:
        from infloop.mcp_server.server import build_server

        def caller(request: Request) -> Caller:
            return self._caller(request.scope)

        return build_server(self._mcp, caller)


async def _end_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that repeats a body, and then goes on."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _wants_stream(scope: Scope) -> bool:
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return b"text/event-stream" in accepted.lower()
