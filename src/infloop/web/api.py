"""The API: all routes in matching order, and the OpenAPI document.

Importing this takes as long as everything else that the server needs to start: see `app.LazyApp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI
from starlette.routing import Route

from infloop.web.errors import API_ERROR, ApiError, handle_errors
from infloop.web.routes import (
    approvals,
    audit,
    catalog,
    connections,
    console,
    costs,
    demo,
    dev_loops,
    doctor,
    events,
    folders,
    health,
    login,
    metrics,
    providers,
    queue,
    run,
    runs,
    session,
    settings,
    triggers,
    webhook,
    workers,
    workflows,
)
from infloop.web.routing import TypedRoute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

    from infloop.web.dependencies import WebDependencies

MCP = "/api/mcp"
_REFERENCE = "#/components/schemas/{name}"

ROUTERS = (
    webhook.ROUTER,
    health.ROUTER,
    login.ROUTER,
    console.ROUTER,
    workflows.ROUTER,
    run.ROUTER,
    events.ROUTER,
    runs.ROUTER,
    queue.ROUTER,
    workers.ROUTER,
    approvals.ROUTER,
    triggers.ROUTER,
    connections.ROUTER,
    providers.ROUTER,
    folders.ROUTER,
    costs.ROUTER,
    demo.ROUTER,
    dev_loops.ROUTER,
    catalog.ROUTER,
    session.ROUTER,
    settings.ROUTER,
    doctor.ROUTER,
    audit.ROUTER,
    metrics.ROUTER,
)
"""The first route that matches is used: the events of a run stand before its record."""


def create_api(web: WebDependencies, mcp: ASGIApp) -> ASGIApp:
    """Return the API; `mcp` serves MCP clients."""
    inner = _Documented(
        title="infloop",
        version=web.application.version,
        description="Runs agent loops on your own machine, durably, and can prove what they did.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    inner.state.dependencies = web
    for router in ROUTERS:  # `include_router` would build each route once more
        inner.router.routes.extend(router.routes)
    inner.router.routes.append(Route(MCP, mcp, methods=["POST"]))
    handle_errors(inner)
    return inner


def create_metrics_api(web: WebDependencies) -> ASGIApp:
    """Return an application that serves `/metrics` only."""
    inner = FastAPI(openapi_url=None, redirect_slashes=False)
    inner.state.dependencies = web
    inner.router.routes.extend(metrics.ROUTER.routes)
    handle_errors(inner)
    return inner


class _Documented(FastAPI):
    """An application whose OpenAPI document matches what is answered."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; invalid requests are answered 400, never 422."""
        if self.openapi_schema:
            return self.openapi_schema
        document = super().openapi()
        _add_models(document)
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"] = dict(_true_responses(operation["responses"]))
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        return document


def _add_models(document: dict[str, Any]) -> None:
    """Put the schemas of the application's models into the document."""
    routes = [route for router in ROUTERS for route in router.routes]
    typed = [route for route in routes if isinstance(route, TypedRoute) and route.answer]
    models = [*(route.answer for route in typed), ApiError]
    refs, components = msgspec.json.schema_components(models, ref_template=_REFERENCE)
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)
    for route, ref in zip(typed, refs[:-1], strict=True):
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            answer = operation["responses"][str(route.status_code or 200)]
            answer["content"] = {"application/json": {"schema": ref}}


def _true_responses(responses: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the responses of an operation; errors are JSON even where a page is HTML."""
    for status, answer in responses.items():
        schemas = [kind.get("schema", {}) for kind in answer.get("content", {}).values()]
        refs = [str(schema.get("$ref", "")) for schema in schemas]
        if any(ref.endswith("/HTTPValidationError") for ref in refs):
            continue
        if any(ref.endswith("/ApiError") for ref in refs):
            own = {name: kind for name, kind in answer["content"].items() if not kind.get("schema")}
            yield status, {**answer, "content": {**own, "application/json": {"schema": API_ERROR}}}
        else:
            yield status, answer
