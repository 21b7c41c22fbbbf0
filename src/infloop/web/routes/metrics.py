"""The figures that Prometheus reads; who asks must be logged in, as for the API."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from infloop.store.base import Calls
from infloop.web.routing import Parts, router

ROUTER = router("metrics")


@ROUTER.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def read_metrics(parts: Parts) -> Response:
    """Return everything that the server counts."""
    service = parts.service
    spent = await service.journal.spent(Calls(instance=service.instance.id))
    page = parts.metrics.page(
        live=len(service.live()),
        queued=await parts.dispatcher.queue.count(),
        streams=len(parts.streams),
        cost_usd=spent.usd,
    )
    return Response(page, media_type=CONTENT_TYPE_LATEST)
