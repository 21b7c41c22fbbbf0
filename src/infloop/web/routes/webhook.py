"""Where webhooks arrive: the one place under `/api/` that asks for no token.

The address is the credential, and so is the signature where the sender signs; see
`infloop.triggers.webhook` for the order of checks.
"""

from __future__ import annotations

from typing import Any

from infloop.application.trigger_models import WebhookAccepted
from infloop.web.routing import router

ROUTER = router("webhooks")

_ANSWERS: dict[int | str, dict[str, Any]] = {
    204: {"description": "Not what the trigger waits for."},
    **{
        status: {"description": text}
        for status, text in {
            401: "No such address, or the signature is missing or wrong.",
            404: "The trigger's workflow is missing.",
            422: "The inputs do not fit the workflow.",
            429: "Too many requests; `Retry-After` says when to come back.",
            500: "The trigger is misconfigured.",
            503: "The run could not start, or the queue is full. `Retry-After` says when to retry.",
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
    status_code=202,
    responses=_ANSWERS,
    openapi_extra=_ASKED,
)
async def receive() -> WebhookAccepted:
    """Accept a webhook; its run is queued durably before it is acknowledged."""
    raise AssertionError("webhooks are answered before routing: see `fast_path`")
