"""Tools that open pages, and the one that closes the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from infloop.errors import EgressError
from infloop.model.capabilities import Need
from infloop.policy.egress_rules import parse_request_url
from infloop.tools.base import Arguments
from infloop.tools.browser.browser_tool import BrowserTool, Nothing

if TYPE_CHECKING:
    from collections.abc import Sequence


class NavigateArguments(Arguments, frozen=True):
    url: Annotated[str, Meta(max_length=8192, description="An http or https URL.")]
    allow_private: Annotated[
        bool, Meta(description="Ask for permission to reach a private address.")
    ] = False


class Navigate(BrowserTool[NavigateArguments]):
    name = "browser_navigate"
    description = (
        "Open a web page in the browser, which starts if it is not running. Returns its title and "
        "URL; read it with browser_read_page."
    )
    arguments = NavigateArguments

    def needs(self, arguments: NavigateArguments) -> Sequence[Need]:
        url = _canonical(arguments.url)
        needs = [Need("network-read", url)]
        return [*needs, Need("private-network", url)] if arguments.allow_private else needs

    async def run(self, arguments: NavigateArguments) -> str:
        url = _canonical(arguments.url)
        async with self.browser.started() as session:
            if arguments.allow_private:
                session.permit_private(url)
            return await session.navigate(url)


class Back(BrowserTool[Nothing]):
    name = "browser_back"
    description = "Return to the page before this one. Returns its title and URL."
    arguments = Nothing

    async def run(self, arguments: Nothing) -> str:
        async with self.browser.session() as session:
            return await session.back()


class Close(BrowserTool[Nothing]):
    name = "browser_close"
    description = "Close the browser. Closing it again does nothing."
    arguments = Nothing

    async def run(self, arguments: Nothing) -> str:
        await self.browser.close()
        return "ok"


def _canonical(url: str) -> str:
    """Return a URL in its canonical form; one that cannot be parsed is returned as it is."""
    try:
        return str(parse_request_url(url))
    except EgressError:
        return url
