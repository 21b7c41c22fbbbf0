"""Where webhooks arrive: the one place under `/api/` that asks for no token.

The address is the credential, and so is the signature where the sender signs; see
`infloop.triggers.webhook` for the order of checks.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from infloop.triggers.webhook import Delivery
from infloop.web.errors import correlation_id
from infloop.web.routing import parts_of, router

ROUTER = router("webhooks")

_ANSWERS: dict[int | str, dict[str, Any]] = {
    202: {"description": "A run is in the queue, durably."},
    204: {"description": "Not what the trigger waits for."},
    **{
        status: {"description": text}
        for status, text in {
            401: "No such address, or the signature is missing or wrong.",
            404: "The trigger's workflow is missing.",
            422: "The inputs do not fit the workflow.",
            429: "Too many requests; `Retry-After` says when to come back.",
            500: "The trigger is misconfigured.",
            503: "The queue is full; `Retry-After` says when to come back.",
        }.items()
    },
}
_ASKED: dict[str, Any] = {
    "requestBody": {"content": {"*/*": {"schema": {}}}},
    "parameters": [
        {
            "name": "trigger_id",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "title": "Trigger Id"},
        }
    ],
}


@ROUTER.post(
    "/api/webhook/{trigger_id}",
    response_class=JSONResponse,
    responses=_ANSWERS,
    openapi_extra=_ASKED,
)
async def receive(request: Request) -> Response:
    """Take a webhook; what it asks for is durable before it is acknowledged."""
    # Without declared parameters, because this is asked most and each costs time.
    parts, named = parts_of(request), correlation_id(request)
    delivery = Delivery(
        request.path_params["trigger_id"],
        tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in _raw(request)),
        await request.body(),
        tuple(request.query_params.multi_items()),
        request.client.host if request.client else "",
    )
    answer = await parts.triggering.receive(delivery, named)
    parts.metrics.webhook(answer.status)
    if answer.status == 429:
        parts.metrics.limited("webhook")
    headers = dict(answer.headers)
    if answer.body is None:
        return Response(status_code=answer.status, headers=headers)
    body = {**answer.body, "correlationId": named}
    return JSONResponse(body, answer.status, headers=headers)


def _raw(request: Request) -> list[tuple[bytes, bytes]]:
    return list(request.scope["headers"])
