"""Builds the ASGI application: the guards in their order, around the API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.web.exposure import Exposure
from infloop.web.fast_path import FastPath
from infloop.web.guards import (
    AnswerErrors,
    AssignCorrelationId,
    Authenticate,
    CheckOrigin,
    CheckUser,
    Guard,
    LimitBody,
    SecurityHeaders,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from infloop.web.dependencies import WebDependencies

GUARDS: tuple[type[Guard], ...] = (
    AssignCorrelationId,  # outermost, so that errors have an id too
    SecurityHeaders,
    AnswerErrors,  # turns errors of everything inside into responses, and counts
    CheckUser,
    CheckOrigin,  # before a byte of the body is read
    LimitBody,
    Authenticate,
)
"""From the outside in."""


class LazyApp:
    """An application that is built in a thread, at `prepare` or at the first request.

    Importing and building the API takes as long as everything else, so the server listens first.
    """

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._built: asyncio.Future[ASGIApp] | None = None

    def prepare(self) -> asyncio.Future[ASGIApp]:
        if self._built is None:
            self._built = asyncio.get_running_loop().run_in_executor(None, self._build)
        return self._built

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        built = await asyncio.shield(self.prepare())
        await built(scope, receive, send)


def lazy_api(web: WebDependencies, mcp: ASGIApp) -> LazyApp:
    """Return the API; `mcp` serves MCP clients."""

    def build() -> ASGIApp:
        from infloop.web.api import create_api

        return create_api(web, mcp)

    return LazyApp(build)


def create_app(web: WebDependencies, api: ASGIApp) -> ASGIApp:
    """Return the guarded application; frequent requests take the fast path."""
    return _guarded(FastPath(api, web), web)


def create_metrics_app(web: WebDependencies) -> ASGIApp:
    """Return the application that serves `/metrics` without a token, on a port of its own.

    Every user of this machine may read it: Prometheus has a user of its own.
    """

    def build() -> ASGIApp:
        from infloop.web.api import create_metrics_api

        return create_metrics_api(web)

    return _guarded(LazyApp(build), replace(web, exposure=Exposure(any_user=True)))


def _guarded(inner: ASGIApp, web: WebDependencies) -> ASGIApp:
    for guard in reversed(GUARDS):
        inner = guard(inner, web)
    return inner
