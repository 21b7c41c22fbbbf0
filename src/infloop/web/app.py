"""Puts the server together: its routes, and the guards that every request passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from infloop.web.errors import handle_errors
from infloop.web.guards import (
    Answered,
    Authenticated,
    Bounded,
    Correlated,
    FromHere,
    Guard,
    Hardened,
)
from infloop.web.routes import (
    audit,
    catalog,
    connections,
    costs,
    doctor,
    events,
    folders,
    health,
    home,
    login,
    measures,
    providers,
    run,
    runs,
    triggers,
    waiting,
    webhook,
    workflows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

    from infloop.web.parts import WebParts

GUARDS: tuple[type[Guard], ...] = (
    Correlated,  # outside everything, so that refusals have an id, too
    Hardened,  # … and the security headers
    Answered,  # whatever goes wrong further in is answered, and counted
    FromHere,  # Host, Origin: before a byte of the body is read
    Bounded,  # the size and the time of the body
    Authenticated,  # the token, or a session
)
"""The guards, from the outside in."""

ROUTERS = (
    webhook.ROUTER,  # it is asked most
    health.ROUTER,
    login.ROUTER,
    home.ROUTER,
    workflows.ROUTER,
    run.ROUTER,
    events.ROUTER,
    runs.ROUTER,
    waiting.ROUTER,
    triggers.ROUTER,
    connections.ROUTER,
    providers.ROUTER,
    folders.ROUTER,
    costs.ROUTER,
    catalog.ROUTER,
    doctor.ROUTER,
    audit.ROUTER,
    measures.ROUTER,
)
"""Of two routes that fit a path, the first is taken: the events of a run before its record."""


def create_app(parts: WebParts) -> ASGIApp:
    """Return the application that answers requests."""
    inner = _Documented(
        title="infloop",
        version=parts.version,
        description="Runs agent loops on your own machine, durably, and can prove what they did.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    inner.state.parts = parts
    for router in ROUTERS:
        inner.include_router(router)
    handle_errors(inner)
    guarded: ASGIApp = inner
    for guard in reversed(GUARDS):
        guarded = guard(guarded, parts)
    return guarded


class _Documented(FastAPI):
    """An application whose document says what is really answered."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; requests that do not fit are answered 400, never 422."""
        if self.openapi_schema:
            return self.openapi_schema
        document = super().openapi()
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"] = dict(_true_answers(operation["responses"]))
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        return document


def _true_answers(responses: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the answers of an operation as they are; errors are JSON, also where a page is not."""
    for status, answer in responses.items():
        schemas = [kind.get("schema", {}) for kind in answer.get("content", {}).values()]
        refs = [str(schema.get("$ref", "")) for schema in schemas]
        if any(ref.endswith("/HTTPValidationError") for ref in refs):
            continue
        if any(ref.endswith("/ApiError") for ref in refs):
            own = {name: kind for name, kind in answer["content"].items() if not kind.get("schema")}
            error = {"schema": {"$ref": "#/components/schemas/ApiError"}}
            yield status, {**answer, "content": {**own, "application/json": error}}
        else:
            yield status, answer
