"""How routes are declared: strict JSON in, typed models out, one documented shape for errors.

A body is read by the rules for files (`model.reading`): duplicate keys, invalid text and numbers
out of range are refused before a route sees them. A route that is annotated with a model of the
application layer returns that model; it is encoded here, and its schema is in the API's document.
"""

from __future__ import annotations

import functools
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from infloop.application.application import Application
from infloop.application.caller import Caller
from infloop.model.audit import Actor
from infloop.model.problems import Report
from infloop.model.reading import read_object
from infloop.web.dependencies import WebDependencies
from infloop.web.errors import correlation_id, documented

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

EVERYWHERE = (400, 401, 403, 408, 413, 415, 429, 503)
"""Statuses that any operation may answer, because a guard does: see `guards`."""

_encoder = msgspec.json.Encoder()


class Body(BaseModel):
    """The body of a request; keys are camelCase outside and snake_case here."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="forbid"
    )


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the body as a JSON object; raise as the standard reader does."""
        data = await self.body()
        report = Report()
        value = read_object(data, report)
        if value is None or report.failed:
            raise json.JSONDecodeError(str(report.problems[0]), "", 0)
        return value


class TypedRoute(APIRoute):
    """A route with a strict body, whose model (`answer`) becomes the JSON of its response."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.answer = _answer_model(endpoint)
        if self.answer is not None:
            options["response_model"] = None
            endpoint = _encoding(endpoint, options.get("status_code") or 200)
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def _answer_model(endpoint: Callable[..., Any]) -> type[msgspec.Struct] | None:
    # Only this one is looked up: FastAPI looks at the parameters itself.
    only = SimpleNamespace(__annotations__={"return": endpoint.__annotations__.get("return")})
    returned = get_type_hints(only, endpoint.__globals__)["return"]
    is_model = isinstance(returned, type) and issubclass(returned, msgspec.Struct)
    return returned if is_model else None


def _encoding(endpoint: Callable[..., Any], status: int) -> Callable[..., Any]:
    """Return the endpoint with its model encoded as JSON."""

    @functools.wraps(endpoint)
    async def encoded(*args: Any, **named: Any) -> Response:
        answer = await endpoint(*args, **named)
        return Response(_encoder.encode(answer), status, media_type="application/json")

    return encoded


def router(topic: str) -> APIRouter:
    """Return a router for one topic."""
    return APIRouter(tags=[topic], route_class=TypedRoute, responses=documented(*EVERYWHERE))


# Coroutines, because FastAPI calls anything else in a thread.


async def _dependencies(request: Request) -> WebDependencies:
    found = request.app.state.dependencies
    assert isinstance(found, WebDependencies)
    return found


async def _application(request: Request) -> Application:
    return (await _dependencies(request)).application


async def _caller(request: Request) -> Caller:
    actor = Actor(request.scope["state"]["actor"])
    return Caller(actor, "api", correlation_id(request))


Dependencies = Annotated[WebDependencies, Depends(_dependencies)]
App = Annotated[Application, Depends(_application)]
Who = Annotated[Caller, Depends(_caller)]
