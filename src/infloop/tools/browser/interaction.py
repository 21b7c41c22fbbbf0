"""Tools that act on the page. What they do can make the page send something."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from infloop.tools.base import Arguments
from infloop.tools.browser.browser_tool import BrowserTool
from infloop.tools.browser.keys import parse_key

_MAX_SCROLL = 50_000


class ScrollArguments(Arguments, frozen=True):
    direction: Annotated[Literal["down", "up", "left", "right"], Meta(description="Where to.")] = (
        "down"
    )
    amount: Annotated[int, Meta(ge=0, le=_MAX_SCROLL, description="How far, in pixels.")] = 600


class Scroll(BrowserTool[ScrollArguments]):
    name = "browser_scroll"
    description = "Scroll the page."
    arguments = ScrollArguments

    async def run(self, arguments: ScrollArguments) -> str:
        amount = arguments.amount if arguments.direction in ("down", "right") else -arguments.amount
        sideways = arguments.direction in ("left", "right")
        async with self.browser.session() as session:
            await session.check_current()
            await session.page.scroll(amount if sideways else 0, 0 if sideways else amount)
            return await session.act()


class ClickArguments(Arguments, frozen=True):
    selector: Annotated[
        str, Meta(description="A CSS selector, or the visible text of a link or button.")
    ]


class Click(BrowserTool[ClickArguments]):
    name = "browser_click"
    description = (
        "Click an element: by CSS selector, or by the visible text of a link or button. Returns "
        "the title and URL afterwards."
    )
    arguments = ClickArguments
    acts = True

    async def run(self, arguments: ClickArguments) -> str:
        async with self.browser.session() as session:
            await session.check_current()
            await session.page.click(arguments.selector)
            return await session.act()


class TypeArguments(Arguments, frozen=True):
    selector: Annotated[str, Meta(description="A CSS selector of the input.")]
    text: Annotated[str, Meta(max_length=100_000, description="What to write into it.")]


class Type(BrowserTool[TypeArguments]):
    name = "browser_type"
    description = "Replace the text of an input that a CSS selector names."
    arguments = TypeArguments
    acts = True

    async def run(self, arguments: TypeArguments) -> str:
        async with self.browser.session() as session:
            await session.check_current()
            await session.page.type(arguments.selector, arguments.text)
            return await session.act()


class PressKeyArguments(Arguments, frozen=True):
    key: Annotated[str, Meta(description="A character, or a name such as Enter or Control+A.")]
    selector: Annotated[
        str, Meta(description="A CSS selector of what gets the key; otherwise what has the focus.")
    ] = ""


class PressKey(BrowserTool[PressKeyArguments]):
    name = "browser_press_key"
    description = (
        "Press a key, on the element that a CSS selector names or where the focus is: Enter, Tab, "
        "ArrowDown, a, Control+A."
    )
    arguments = PressKeyArguments
    acts = True

    async def run(self, arguments: PressKeyArguments) -> str:
        key = parse_key(arguments.key)
        async with self.browser.session() as session:
            await session.check_current()
            await session.page.press(key, arguments.selector)
            return await session.act()
