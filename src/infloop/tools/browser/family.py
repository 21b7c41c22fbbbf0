"""The tools of a browser, and the browser that they share."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from infloop.tools.base import ToolError, ToolFamily
from infloop.tools.browser.browser_tool import NOT_STARTED, BrowserTool
from infloop.tools.browser.interaction import Click, PressKey, Scroll, Type
from infloop.tools.browser.navigation import Back, Close, Navigate
from infloop.tools.browser.reading import ReadPage, RunJs, Screenshot, WaitFor
from infloop.tools.browser.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.sandbox.base import Sandbox
    from infloop.tools.base import Tool
    from infloop.tools.browser.links import BrowserOptions
    from infloop.tools.workspace.files import Workspace


TOOLS: tuple[type[BrowserTool[Any]], ...] = (
    Navigate,
    Back,
    Scroll,
    Click,
    Type,
    PressKey,
    WaitFor,
    ReadPage,
    RunJs,
    Screenshot,
    Close,
)
"""All tools of this package."""


class BrowserTools(ToolFamily):
    """A browser that starts with the first page and ends with the agent."""

    def __init__(self, sandbox: Sandbox, options: BrowserOptions, workspace: Workspace) -> None:
        """Start nothing yet. The sandbox must not belong to a single step of a run."""
        self._sandbox = sandbox
        self._options = options
        self._session: Session | None = None
        self._one_at_a_time = asyncio.Lock()
        self.workspace = workspace
        self._tools = tuple(tool(self) for tool in TOOLS)

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        return self._tools

    @property
    def address(self) -> str:
        return self._session.last_url if self._session else ""

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Session]:
        async with self._one_at_a_time:
            if self._session is None or self._session.ended:
                await self._end()
                self._session = Session(self._sandbox, self._options)
            yield self._session

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with self._one_at_a_time:
            if self._session is None or not (self._session.is_open or self._session.ended):
                raise ToolError("browser-not-started", NOT_STARTED)
            if reason := self._session.ended:
                await self._end()
                raise ToolError("browser-ended", f"{reason}; call browser_navigate to start again")
            yield self._session

    async def close(self) -> None:
        async with self._one_at_a_time:
            await self._end()

    async def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
