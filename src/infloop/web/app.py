"""Puts the server together: what answers requests, and the guards that each of them passes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from infloop.web.exposure import Exposure
from infloop.web.fast_path import FastPath
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

    from infloop.web.dependencies import WebDependencies

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

    def prepare(self) -> asyncio.Future[ASGIApp]:
        """Begin to make it, if nobody has yet."""
        if self._made is None:
            self._made = asyncio.get_running_loop().run_in_executor(None, self._make)
        return self._made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as soon as it is made."""
        made = await asyncio.shield(self.prepare())
        await made(scope, receive, send)


def later_api(web: WebDependencies, mcp: ASGIApp) -> Later:
    """Return the API; `mcp` answers the clients of that protocol."""

    def make() -> ASGIApp:
        from infloop.web.api import create_api

        return create_api(web, mcp)

    return Later(make)


def create_app(web: WebDependencies, api: ASGIApp) -> ASGIApp:
    """Return the application that answers requests: some directly, the others as `api` does."""
    return _guarded(FastPath(api, web), web)


def create_metrics_app(web: WebDependencies) -> ASGIApp:
    """Return the application that answers `/metrics` without a token, on a port of its own."""

    def make() -> ASGIApp:
        from infloop.web.api import create_metrics_api

        return create_metrics_api(web)

    return _guarded(Later(make), replace(web, exposure=Exposure()))


def _guarded(inner: ASGIApp, web: WebDependencies) -> ASGIApp:
    for guard in reversed(GUARDS):
        inner = guard(inner, web)
    return inner
