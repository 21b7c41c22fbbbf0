"""What is answered without the API: webhooks, which are asked most, and whether the server lives.

The framework's way to a route costs several times what the answer to a webhook does. `routes` has
both of them for the API's document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from infloop.application.triggers import Delivery
from infloop.errors import InfloopError
from infloop.web.errors import answer as error_answer
from infloop.web.guards import WEBHOOKS, Guard, is_webhook

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from infloop.application.triggers import WebhookAnswer
    from infloop.model.values import JsonObject
    from infloop.web.dependencies import WebDependencies

ALIVE = "/healthz"


class _Route(NamedTuple):
    """What an answer is counted under."""

    path: str


_WEBHOOK, _ALIVE = _Route(f"{WEBHOOKS}{{trigger_id}}"), _Route(ALIVE)


class FastPath(Guard):
    """Answers what needs no route, and passes on everything else."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        path, method = scope["path"], scope["method"]
        if method == "POST" and is_webhook(path) and path != WEBHOOKS:
            await _take(self._web, scope, receive, send)
        elif method == "GET" and path == ALIVE:
            scope["route"] = _ALIVE
            await _send_json(200, {"status": "ok"}, [], send)
        else:
            await self._app(scope, receive, send)


async def _take(web: WebDependencies, scope: Scope, receive: Receive, send: Send) -> None:
    """Take a webhook; what it asks for is durable before it is acknowledged."""
    scope["route"] = _WEBHOOK
    named = scope["state"]["correlation_id"]
    try:
        body = await Request(scope, receive).body()
    except ClientDisconnect:
        return
    delivery = Delivery(
        scope["path"].removeprefix(WEBHOOKS),
        tuple((name.decode("latin-1"), text.decode("latin-1")) for name, text in scope["headers"]),
        body,
        tuple(QueryParams(scope["query_string"]).multi_items()) if scope["query_string"] else (),
        scope["client"][0] if scope.get("client") else "",
    )
    try:
        answer = await web.application.triggers.receive(delivery, named)
    except InfloopError as error:
        await error_answer(error, named)(scope, receive, send)
        return
    web.metrics.webhook(answer.status)
    if answer.status == 429:
        web.metrics.limited("webhook")
    await _send(answer, named, send)


async def _send(answer: WebhookAnswer, named: str, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    if answer.body is not None:
        await _send_json(answer.status, {**answer.body, "correlationId": named}, headers, send)
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _send_json(
    status: int, content: JsonObject, headers: list[tuple[bytes, bytes]], send: Send
) -> None:
    body = msgspec.json.encode(content)
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
