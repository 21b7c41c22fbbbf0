"""What the tools of a browser share: the browser, and how calls to it are permitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from infloop.model.capabilities import Need
from infloop.tools.base import Arguments, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from infloop.tools.browser.session import Session
    from infloop.tools.workspace.files import Workspace

NOT_STARTED = "browser session not started; call browser_navigate first"

A = TypeVar("A", bound=Arguments)


class Nothing(Arguments, frozen=True):
    """A call without arguments."""


class Browser(Protocol):
    """The browser of one agent; one call uses it at a time."""

    @property
    def address(self) -> str:
        """The address of the page when a tool has last looked; empty without a page."""

    @property
    def workspace(self) -> Workspace:
        """Where pictures are written."""

    def started(self) -> AbstractAsyncContextManager[Session]:
        """Return the browser, which may have no page yet."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Return the open browser; ToolError if there is none."""

    async def close(self) -> None:
        """End the browser, if there is one."""


class BrowserTool(Tool[A]):
    """A tool that reads the page; `acts` if it can make the page send something."""

    acts = False

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def needs(self, arguments: A) -> Sequence[Need]:
        address = self.browser.address or "no page"
        return [Need("network-write" if self.acts else "network-read", address)]
