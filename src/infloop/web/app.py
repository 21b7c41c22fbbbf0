"""Puts the server together: what answers requests, and the guards that each of them passes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from infloop.web.exposure import Posture
from infloop.web.fast_path import Directly
from infloop.web.guards import (
    Answered,
    Authenticated,
    Bounded,
    Correlated,
    FromHere,
    Guard,
    Hardened,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from infloop.web.dependencies import WebParts

GUARDS: tuple[type[Guard], ...] = (
    Correlated,  # outside everything, so that refusals have an id, too
    Hardened,  # … and the security headers
    Answered,  # whatever goes wrong further in is answered, and counted
    FromHere,  # Host, Origin: before a byte of the body is read
    Bounded,  # the size and the time of the body
    Authenticated,  # the token, or a session
)
"""The guards, from the outside in."""


class Later:
    """An application that is made in a thread, when it is first asked or told to get ready.

    Importing the API takes as long as all else together, so the server begins without it.
    """

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._made: asyncio.Future[ASGIApp] | None = None

    def get_ready(self) -> asyncio.Future[ASGIApp]:
        """Begin to make it, if nobody has yet."""
        if self._made is None:
            self._made = asyncio.get_running_loop().run_in_executor(None, self._make)
        return self._made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as soon as it is made."""
        made = await asyncio.shield(self.get_ready())
        await made(scope, receive, send)


def later_api(parts: WebParts, mcp: ASGIApp) -> Later:
    """Return the API; `mcp` answers the clients of that protocol."""

    def make() -> ASGIApp:
        from infloop.web.api import create_api

        return create_api(parts, mcp)

    return Later(make)


def create_app(parts: WebParts, api: ASGIApp) -> ASGIApp:
    """Return the application that answers requests: some directly, the others as `api` does."""
    return _guarded(Directly(api, parts), parts)


def create_metrics_app(parts: WebParts) -> ASGIApp:
    """Return the application that answers `/metrics` without a token, on a port of its own."""

    def make() -> ASGIApp:
        from infloop.web.api import create_measures

        return create_measures(parts)

    return _guarded(Later(make), replace(parts, posture=Posture()))


def _guarded(inner: ASGIApp, parts: WebParts) -> ASGIApp:
    for guard in reversed(GUARDS):
        inner = guard(inner, parts)
    return inner
