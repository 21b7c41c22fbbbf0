"""How routes are declared: strict JSON in, one documented shape for every refusal.

A body is read by the rules for files (`model.reading`): a key that occurs twice, text that nothing
can hold and numbers of no use are refused before a route sees them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from infloop.model.audit import Actor
from infloop.model.problems import Report
from infloop.model.reading import read_object
from infloop.web.dependencies import WebParts
from infloop.web.errors import correlation_id, documented

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.responses import Response

EVERYWHERE = (400, 401, 403, 408, 413, 415, 503)
"""What any operation may answer, because a guard does: see `guards`."""


class Shape(BaseModel):
    """A part of a request or an answer; keys are camelCase outside and snake_case here."""

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


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler with strict reading in front of it."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def router(topic: str) -> APIRouter:
    """Return a router for one topic."""
    return APIRouter(tags=[topic], route_class=_StrictRoute, responses=documented(*EVERYWHERE))


def parts_of(request: Request) -> WebParts:
    """Return what the server is made of."""
    parts = request.app.state.parts
    assert isinstance(parts, WebParts)
    return parts


# Coroutines, because what is not one is called in a thread, each time.


async def _parts(request: Request) -> WebParts:
    return parts_of(request)


async def _actor(request: Request) -> Actor:
    return Actor(request.scope["state"]["actor"])


async def _correlation_id(request: Request) -> str:
    return correlation_id(request)


Parts = Annotated[WebParts, Depends(_parts)]
Who = Annotated[Actor, Depends(_actor)]
CorrelationId = Annotated[str, Depends(_correlation_id)]
