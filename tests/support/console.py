"""The console in a real browser. Everything that a page does wrong on the way is collected."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, expect

from support.login import cookie_of, log_in
from support.server import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.server import Client

expect.set_options(timeout=PATIENCE * 1000)


class Console:
    """Tabs of one person at one server."""

    def __init__(self, context: BrowserContext, client: Client) -> None:
        self.context = context
        self.client = client
        self.origin = f"http://127.0.0.1:{client.port}"
        self.complaints: list[str] = []
        """Logged and uncaught errors, refusals of the security policy, requests to other hosts."""
        self.expected: tuple[str, ...] = ()
        """Parts of complaints that a test causes itself."""

    def open(self, path: str = "/") -> Page:
        """Open a page in a new tab."""
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._requested(request.url))
        page.goto(self.origin + path)
        return page

    def check(self) -> None:
        """Raise if a page did something wrong."""
        wrong = [
            text for text in self.complaints if not any(part in text for part in self.expected)
        ]
        assert not wrong, wrong

    def _heard(self, message: object) -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def _requested(self, url: str) -> None:
        parts = urlsplit(url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin and parts.scheme not in (
            "data",
            "blob",
        ):
            self.complaints.append(f"request to another host: {url}")


@contextmanager
def console(
    browser: Browser,
    client: Client,
    *,
    size: tuple[int, int] = (1440, 900),
    theme: str = "light",
    token: str = "",
    expected: Sequence[str] = (),
) -> Iterator[Console]:
    """Yield the console of a server; with `token` the person has logged in."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    made = Console(context, client)
    made.expected = tuple(expected)
    try:
        if token:
            name, _, value = cookie_of(log_in(client, token)).partition("=")
            context.add_cookies([{"name": name, "value": value, "url": made.origin}])
        yield made
        made.check()
    finally:
        context.close()
