"""The tools of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infloop.tools.base import Tool, ToolFamily
from infloop.tools.web.a2a import A2aDiscover, A2aSend
from infloop.tools.web.fetch import WebFetch
from infloop.tools.web.search import WebSearch

if TYPE_CHECKING:
    from infloop.tools.http_requests import ToolRequests
    from infloop.tools.web.search import SearchEndpoint


TOOLS: tuple[type[Tool[Any]], ...] = (WebFetch, WebSearch, A2aDiscover, A2aSend)
"""All tools of this package."""


class WebTools(ToolFamily):
    """Tools that send requests; they keep nothing open between calls."""

    def __init__(self, requests: ToolRequests, search: SearchEndpoint | None = None) -> None:
        """Use `requests`; without `search`, `web_search` says what to configure."""
        self._tools: tuple[Tool[Any], ...] = (
            WebFetch(requests),
            WebSearch(requests, search),
            A2aDiscover(requests),
            A2aSend(requests),
        )

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        return self._tools
