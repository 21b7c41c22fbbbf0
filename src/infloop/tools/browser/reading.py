"""Tools that read the page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.model.capabilities import Need
from infloop.tools.base import Arguments, ToolError
from infloop.tools.browser.browser_tool import BrowserTool, Nothing
from infloop.tools.browser.page import MAX_PAGE_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence

SCREENSHOT = ".browser/screenshot.png"
_MAX_WAIT_MS = 30_000
_SCRIPT_S = 20.0


class WaitForArguments(Arguments, frozen=True):
    selector: Annotated[str, Meta(description="A CSS selector that must match.")] = ""
    text: Annotated[str, Meta(description="A text that must be visible.")] = ""
    timeout_ms: Annotated[int, Meta(ge=0, description="How long to wait; 30 seconds at most.")] = (
        10_000
    )


class WaitFor(BrowserTool[WaitForArguments]):
    name = "browser_wait_for"
    description = (
        "Wait until a CSS selector matches and a text is visible; at most 30 seconds. Give one of "
        "them or both."
    )
    arguments = WaitForArguments

    async def run(self, arguments: WaitForArguments) -> str:
        if not (arguments.selector or arguments.text):
            raise ToolError("bad-arguments", "give a selector, a text, or both")
        timeout_s = min(arguments.timeout_ms, _MAX_WAIT_MS) / 1000
        async with self.browser.session() as session:
            await session.check_current()
            found = await session.page.wait_for(arguments.selector, arguments.text, timeout_s)
            described = await session.describe()
        if not found:
            raise ToolError("timed-out", f"it did not appear in {timeout_s:g} s")
        return described


class ReadPage(BrowserTool[Nothing]):
    name = "browser_read_page"
    description = "Return the title, URL and visible text of the page."
    arguments = Nothing

    async def run(self, arguments: Nothing) -> str:
        async with self.browser.session() as session:
            await session.check_current()
            text = await session.page.text()
            described = await session.describe()
        cut = "\n[… the page is longer …]" if len(text) > MAX_PAGE_CHARS else ""
        return f"{described}\n\n{text[:MAX_PAGE_CHARS]}{cut}"


class RunJsArguments(Arguments, frozen=True):
    expression: Annotated[
        str, Meta(max_length=100_000, description="The expression; a promise is waited for.")
    ]


class RunJs(BrowserTool[RunJsArguments]):
    name = "browser_run_js"
    description = "Evaluate a JavaScript expression in the page. Returns its value as JSON."
    arguments = RunJsArguments
    acts = True

    def needs(self, arguments: RunJsArguments) -> Sequence[Need]:
        return [Need("execute", arguments.expression), *super().needs(arguments)]

    async def run(self, arguments: RunJsArguments) -> str:
        async with self.browser.session() as session:
            await session.check_current()
            value = await session.page.run_script(arguments.expression, _SCRIPT_S)
            return f"{await session.act()}\n\n{value[:MAX_PAGE_CHARS]}"


class ScreenshotArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace.")] = SCREENSHOT


class Screenshot(BrowserTool[ScreenshotArguments]):
    name = "browser_screenshot"
    description = "Save a picture of the visible part of the page as PNG. Returns its path."
    arguments = ScreenshotArguments

    def needs(self, arguments: ScreenshotArguments) -> Sequence[Need]:
        return [Need("write", arguments.path), *super().needs(arguments)]

    async def run(self, arguments: ScreenshotArguments) -> str:
        async with self.browser.session() as session:
            await session.check_current()
            picture = await session.page.screenshot()
            await session.check_current()
        await asyncio.to_thread(self.browser.workspace.write_bytes, arguments.path, picture)
        return arguments.path
