"""Decides which API calls a child may make with a key it does not have: exact method and path.

A path that could be read in two ways (dot segments, escapes, empty segments) is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Dialect: TypeAlias = Literal["anthropic", "openai"]

# Our own fixed pattern: no nested repeats over the same characters.
_SEGMENT = re.compile(r"[A-Za-z0-9_~:.-]+", re.ASCII)  # noqa: TID251
_QUERY = re.compile(r"[A-Za-z0-9_~=&.,:+-]*", re.ASCII)  # noqa: TID251


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


ROUTES: Mapping[Dialect, tuple[Route, ...]] = {
    "anthropic": (
        Route("POST", "/v1/messages"),
        Route("POST", "/v1/messages/count_tokens"),
    ),
    "openai": (
        Route("POST", "/v1/responses"),
        Route("POST", "/v1/chat/completions"),
        Route("GET", "/v1/models"),
    ),
}

FREE_ROUTES = frozenset(
    (
        Route("POST", "/v1/messages/count_tokens"),
        Route("GET", "/v1/models"),
    )
)
"""Routes whose calls cost nothing."""


class RouteMatch(msgspec.Struct, frozen=True):
    """The matching route, or the HTTP status and reason of the refusal."""

    route: Route | None = None
    query: str = ""
    status: int = 0
    reason: str = ""


def find_route(method: str, target: str, routes: Sequence[Route]) -> RouteMatch:
    """Return the route that a request matches."""
    path, _, query = target.partition("?")
    segments = path.split("/")[1:]
    if any(not _SEGMENT.fullmatch(part) or part in (".", "..") for part in segments):
        return RouteMatch(status=400, reason="the path has a segment that is not plain")
    if not _QUERY.fullmatch(query):
        return RouteMatch(status=400, reason="the query is not plain")
    for route in routes:
        if (route.method, route.path) == (method, path):
            return RouteMatch(route, query)
    return RouteMatch(status=403, reason=f"{method} {path} is not among the calls that may be made")
