"""A session with one server: opened once, asked many times, closed at the end.

The session lives in a task of its own, because the protocol's library wants to be left in the task
in which it was entered. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from infloop import __version__
from infloop.lowlevel.uncancelled import wait_uncancelled
from infloop.tools.mcp.definitions import MAX_TOOLS, RawTool, plain_text
from infloop.tools.mcp.streams import ServerFailed

if TYPE_CHECKING:
    from infloop.tools.mcp.streams import Inbox, OpenStreams

_MAX_PAGES = 32
_MAX_ERROR_CHARS = 500


class Connection:
    """One server. Raises ServerFailed when it does not do what it should."""

    def __init__(self, open_streams: OpenStreams, *, start_s: float, call_s: float) -> None:
        self._open_streams = open_streams
        self._start_s = start_s
        self._call_s = call_s
        self._ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._inbox: Inbox | None = None
        self._task: asyncio.Task[None] | None = None
        self._current: set[str] | None = None

    async def start(self) -> list[RawTool]:
        """Open the session and return the server's tools."""
        self._task = asyncio.create_task(self._serve())
        try:
            async with asyncio.timeout(self._start_s):
                await asyncio.shield(self._ready)
                return await self._list_tools()
        except TimeoutError:
            raise ServerFailed(f"it did not start within {self._start_s:g} s") from None
        except (MCPError, ValidationError, RuntimeError) as error:
            raise self._failure(error) from None

    async def still_has(self, tool: RawTool) -> bool:
        """Tell whether a tool is as it was; ask again if the server said that tools changed."""
        assert self._inbox is not None
        if self._inbox.tools_changed:
            self._inbox.tools_changed = False
            try:
                async with asyncio.timeout(self._start_s):
                    self._current = {one.digest for one in await self._list_tools()}
            except (TimeoutError, MCPError, ValidationError, RuntimeError) as error:
                self._current = set()
                raise self._failure(error) from None
        return self._current is None or tool.digest in self._current

    async def call(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Call a tool. Its result is not checked against the schema, which is the server's too."""
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        try:
            async with asyncio.timeout(self._call_s):
                session = await asyncio.shield(self._ready)
                return await session.send_request(
                    types.CallToolRequest(params=params), types.CallToolResult
                )
        except TimeoutError:
            raise ServerFailed(f"it did not answer within {self._call_s:g} s") from None
        except (MCPError, ValidationError, RuntimeError) as error:
            raise self._failure(error) from None

    async def close(self) -> None:
        """End the session and everything behind it."""
        self._closing.set()
        if self._task is None:
            return
        self._task.cancel()
        cancelled = await wait_uncancelled(self._task)
        if not self._task.cancelled():
            self._task.exception()  # retrieved, so that asyncio does not log it
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()
        if cancelled:
            raise asyncio.CancelledError

    async def _serve(self) -> None:
        info = types.Implementation(name="infloop", version=__version__)
        try:
            async with self._open_streams() as (inbox, outbox):
                self._inbox = inbox
                async with ClientSession(inbox, outbox, client_info=info) as session:
                    await session.initialize()
                    self._ready.set_result(session)
                    await self._closing.wait()
        except Exception as error:  # noqa: BLE001  (the edge of a task: whoever waits gets it)
            if not self._ready.done():
                self._ready.set_exception(self._failure(error))

    async def _list_tools(self) -> list[RawTool]:
        session = await asyncio.shield(self._ready)
        found: list[RawTool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += [
                RawTool(tool.name, tool.description or "", tool.input_schema) for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None or len(found) > MAX_TOOLS:
                break
        if len(found) > MAX_TOOLS:
            raise ServerFailed(f"it has more than {MAX_TOOLS} tools")
        return found

    def _failure(self, error: Exception) -> ServerFailed:
        """Return what happened, in words that are safe to show."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ServerFailed):
            return error
        if self._inbox is not None and self._inbox.failure:
            return ServerFailed(self._inbox.failure)
        if isinstance(error, MCPError):
            message = plain_text(error.error.message, _MAX_ERROR_CHARS)
            return ServerFailed(f"it reports error {error.error.code}: {message}")
        if isinstance(error, ValidationError):
            return ServerFailed("its answer is not what the protocol says")
        return ServerFailed(plain_text(str(error) or type(error).__name__, _MAX_ERROR_CHARS))
