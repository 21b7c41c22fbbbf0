"""The figures that Prometheus reads; a caller must be logged in, as for the API."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from infloop.web.routing import Dependencies, router

ROUTER = router("metrics")


@ROUTER.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def read_metrics(web: Dependencies) -> Response:
    """Return everything that the server counts."""
    page = web.metrics.page(await web.application.health.load(), streams=len(web.streams))
    return Response(page, media_type=CONTENT_TYPE_LATEST)
