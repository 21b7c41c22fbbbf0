"""What can be done with a page.

Scripts of ours run in a world of their own, in which nothing of the page's scripts is visible. The
address and the title come from the browser itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from infloop.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.tools.browser.devtools import DevTools, Params
    from infloop.tools.browser.keys import Key

MAX_PAGE_CHARS = 50_000
"""How much text of a page is returned."""

_SETTLE_S = 2.0
_LOAD_S = 10.0
_SCRIPT_S = 20.0
_POLL_S = 0.05
_LONGEST_TITLE = 500
_CLICKABLE = (
    "a,button,summary,label,option,input[type=submit],input[type=button],input[type=reset],"
    "[role=button],[role=link],[role=tab],[role=menuitem],[onclick]"
)
_FIND = """(wanted, clickable) => {
  try {
    const found = document.querySelector(wanted)
    if (found) return found
  } catch {}
  if (!clickable) return null
  const fold = text => (text || '').replace(/\\s+/g, ' ').trim().toLowerCase()
  const text = fold(wanted)
  const label = each => fold(each.innerText || each.value || each.ariaLabel)
  const all = [...document.querySelectorAll(clickable)].filter(each => each.checkVisibility())
  return all.find(each => label(each) === text) || all.find(each => label(each).includes(text))
}"""
_SELECT_ALL = """function () {
  this.focus()
  if (this.select) this.select()
  else if (this.isContentEditable) getSelection().selectAllChildren(this)
}"""
# Pages submit forms and follow links in tasks of their own, which come before this timer.
_SETTLE = "new Promise(done => setTimeout(done, 50))"
_TEXT = f"""(() => {{
  const root = document.body || document.documentElement
  return root ? (root.innerText ?? root.textContent ?? '').slice(0, {MAX_PAGE_CHARS + 1}) : ''
}})()"""
_HAS = """(selector, text) => {
  if (selector && !document.querySelector(selector)) return false
  return !text || (document.body?.innerText || '').includes(text)
}"""


class Page:
    """One page of a browser; `loading` is what the browser says about its main frame."""

    def __init__(self, devtools: DevTools, target: str, session: str) -> None:
        self._devtools = devtools
        self._session = session
        self.target = target
        self.loading = False
        self._changed = asyncio.Event()

    async def call(self, method: str, **params: Any) -> Params:
        """Send a command about this page."""
        return await self._devtools.call(method, self._session, **params)

    def on_event(self, method: str, params: Params) -> None:
        """Notice what the browser says about this page."""
        if params.get("frameId") != self.target:
            return
        if method == "Page.frameStartedLoading":
            self.loading = True
        elif method == "Page.frameStoppedLoading":
            self.loading = False
        self._changed.set()

    async def place(self) -> tuple[str, str]:
        """Return the address and the title, as the browser's own process knows them."""
        found = await self._devtools.call("Target.getTargetInfo", targetId=self.target)
        info = found.get("targetInfo") or {}
        return str(info.get("url") or ""), clean(str(info.get("title") or ""))[:_LONGEST_TITLE]

    async def settle(self, seconds: float = _LOAD_S) -> None:
        """Wait a moment for a navigation to begin, and until it has loaded or the time is over."""
        with suppress(ToolError):  # the world is gone if a navigation has begun
            await self._value(_SETTLE, timeout_s=_SETTLE_S)
        await self.place()
        try:
            async with asyncio.timeout(seconds):
                while self.loading:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    async def text(self) -> str:
        """Return the visible text, a character longer than the limit if there is more."""
        return clean(str(await self._value(_TEXT) or ""))

    async def run_script(self, expression: str, timeout_s: float) -> str:
        """Run a script of the model in the page's own world; return its value as JSON."""
        answer = await self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
            timeout=timeout_s * 1000,
            timeout_s=timeout_s + 1,
        )
        if "exceptionDetails" in answer:
            raise ToolError("script-failed", f"the script failed: {_exception(answer)}")
        result = answer.get("result") or {}
        value = result.get("value", result.get("description"))
        return clean(json.dumps(value, ensure_ascii=False))

    async def click(self, wanted: str) -> None:
        """Click what a selector or a visible text names."""
        node = await self._find(wanted, _CLICKABLE)
        quads: list[list[float]] = []
        with suppress(ToolError):  # what is hidden has no place on the page
            await self.call("DOM.scrollIntoViewIfNeeded", objectId=node)
            quads = (await self.call("DOM.getContentQuads", objectId=node)).get("quads") or []
        if not quads:
            raise ToolError("not-visible", f"{wanted[:200]!r} is not visible on the page")
        corners = quads[0]
        x, y = sum(corners[0::2]) / 4, sum(corners[1::2]) / 4
        await self._mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            await self._mouse(kind, x, y, button="left", clickCount=1)

    async def type(self, selector: str, text: str) -> None:
        """Replace the text of an input."""
        node = await self._find(selector)
        await self.call("Runtime.callFunctionOn", functionDeclaration=_SELECT_ALL, objectId=node)
        if text:
            await self.call("Input.insertText", text=text)
        else:
            await self._key("Backspace", 8)

    async def press(self, key: Key, selector: str) -> None:
        """Press a key, on an element if there is a selector."""
        if selector:
            node = await self._find(selector)
            await self.call("DOM.focus", objectId=node)
        shared: Params = {
            "key": key.key,
            "code": key.code,
            "windowsVirtualKeyCode": key.number,
            "modifiers": key.modifiers,
        }
        down = {"type": "keyDown", "text": key.text} if key.text else {"type": "rawKeyDown"}
        await self.call("Input.dispatchKeyEvent", **shared, **down)
        await self.call("Input.dispatchKeyEvent", **shared, type="keyUp")

    async def scroll(self, x: int, y: int) -> None:
        """Scroll by some pixels."""
        await self._value(f"window.scrollBy({x}, {y})")

    async def wait_for(self, selector: str, text: str, timeout_s: float) -> bool:
        """Wait until a selector matches and a text is visible; return whether they are."""

        async def look() -> bool:
            world = await self._world()
            return bool(await self._call_function(world, _HAS, selector, text))

        return await _repeat(look, timeout_s)

    async def screenshot(self) -> bytes:
        """Return a picture of what is visible, as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(str(answer.get("data", "")))

    async def history(self) -> tuple[int, str]:
        """Return the entry before this page, and its address; 0 and nothing if there is none."""
        answer = await self.call("Page.getNavigationHistory")
        index, entries = int(answer.get("currentIndex", 0)), answer.get("entries") or []
        if index < 1:
            return 0, ""
        return int(entries[index - 1]["id"]), str(entries[index - 1].get("url") or "")

    async def _find(self, wanted: str, clickable: str = "") -> str:
        """Return the object of an element; ToolError if there is none."""
        world = await self._world()
        answer = await self.call(
            "Runtime.callFunctionOn",
            functionDeclaration=_FIND,
            executionContextId=world,
            arguments=[{"value": wanted}, {"value": clickable}],
        )
        found = str((answer.get("result") or {}).get("objectId") or "")
        if not found:
            raise ToolError("not-found", f"nothing on the page matches {wanted[:200]!r}")
        return found

    async def _world(self) -> int:
        """Return our own world in the page, which is another one after each navigation."""
        made = await self.call("Page.createIsolatedWorld", frameId=self.target, worldName="tools")
        return int(made["executionContextId"])

    async def _value(self, expression: str, timeout_s: float = _SCRIPT_S) -> object:
        answer = await self.call(
            "Runtime.evaluate",
            expression=expression,
            contextId=await self._world(),
            returnByValue=True,
            awaitPromise=True,
            timeout_s=timeout_s,
        )
        return (answer.get("result") or {}).get("value")

    async def _call_function(self, world: int, function: str, *arguments: str) -> object:
        answer = await self.call(
            "Runtime.callFunctionOn",
            functionDeclaration=function,
            executionContextId=world,
            arguments=[{"value": each} for each in arguments],
            returnByValue=True,
        )
        if "exceptionDetails" in answer:
            raise ToolError("bad-selector", _exception(answer))
        return (answer.get("result") or {}).get("value")

    async def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    async def _key(self, key: str, number: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=number,
            )


async def _repeat(look: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
    """Look until there is something to see, or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await look():  # noqa: ASYNC110  (a page has no event for it)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
    return True


def clean(text: str) -> str:
    """Return text of a page without halves of characters, which cannot be encoded."""
    return text.encode("utf-8", "replace").decode()


def _exception(answer: Params) -> str:
    details = answer["exceptionDetails"]
    thrown = details.get("exception") or {}
    return clean(str(thrown.get("description") or details.get("text") or "unknown"))[:1000]
