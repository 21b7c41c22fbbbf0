"""The API: all routes, in the order in which they are looked through.

Importing this takes as long as everything else that the server needs to begin: see `app`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI
from starlette.routing import Route

from infloop.web.errors import handle_errors
from infloop.web.routes import (
    approvals,
    audit,
    catalog,
    connections,
    costs,
    dispatch,
    doctor,
    events,
    folders,
    health,
    home,
    login,
    metrics,
    providers,
    queue,
    run,
    runs,
    triggers,
    webhook,
    workflows,
)
from infloop.web.routing import TypedRoute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message

    from infloop.web.dependencies import WebDependencies

MCP = "/api/mcp"
_REFERENCE = "#/components/schemas/{name}"

ROUTERS = (
    webhook.ROUTER,  # it is asked most
    health.ROUTER,
    login.ROUTER,
    home.ROUTER,
    dispatch.ROUTER,
    workflows.ROUTER,
    run.ROUTER,
    events.ROUTER,
    runs.ROUTER,
    queue.ROUTER,
    approvals.ROUTER,
    triggers.ROUTER,
    connections.ROUTER,
    providers.ROUTER,
    folders.ROUTER,
    costs.ROUTER,
    catalog.ROUTER,
    doctor.ROUTER,
    audit.ROUTER,
    metrics.ROUTER,
)
"""Of two routes that fit a path, the first is taken: the events of a run before its record."""


def create_api(web: WebDependencies, mcp: ASGIApp) -> ASGIApp:
    """Return what answers everything; `mcp` answers the clients of that protocol."""
    inner = _Documented(
        title="infloop",
        version=web.application.version,
        description="Runs agent loops on your own machine, durably, and can prove what they did.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    inner.state.dependencies = web
    for router in ROUTERS:
        inner.include_router(router)
    inner.router.routes.append(Route(MCP, mcp, methods=["POST"]))
    handle_errors(inner)
    _get_ready(inner)
    return inner


def create_metrics_api(web: WebDependencies) -> ASGIApp:
    """Return what answers `/metrics` and nothing else."""
    inner = FastAPI(openapi_url=None, redirect_slashes=False)
    inner.state.dependencies = web
    inner.include_router(metrics.ROUTER)
    handle_errors(inner)
    return inner


def _get_ready(app: ASGIApp) -> None:
    """Look through all routes in vain: each is made ready when it is first looked at."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        """Nobody asked."""

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/nowhere",
        "query_string": b"",
        "headers": [],
        "state": {"correlation_id": ""},
    }
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]


class _Documented(FastAPI):
    """An application whose document says what is really answered."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; requests that do not fit are answered 400, never 422."""
        if self.openapi_schema:
            return self.openapi_schema
        document = super().openapi()
        _add_models(document)
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"] = dict(_true_answers(operation["responses"]))
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        return document


def _add_models(document: dict[str, Any]) -> None:
    """Put the schemas of the application's models into the document."""
    routes = [route for router in ROUTERS for route in router.routes]
    typed = [route for route in routes if isinstance(route, TypedRoute) and route.answer]
    models = [route.answer for route in typed]
    refs, components = msgspec.json.schema_components(models, ref_template=_REFERENCE)
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)
    for route, ref in zip(typed, refs, strict=True):
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            answer = operation["responses"][str(route.status_code or 200)]
            answer["content"] = {"application/json": {"schema": ref}}


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
