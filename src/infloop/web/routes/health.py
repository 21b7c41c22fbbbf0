"""Whether the server is well, for monitoring; it says nothing else to anybody."""

from __future__ import annotations

from infloop.application.health import Health
from infloop.web.routing import App, router

ROUTER = router("health")


@ROUTER.get("/healthz")
async def alive() -> Health:
    """Answer, which shows that the server lives."""
    return Health()


@ROUTER.get("/readyz")
async def ready(app: App) -> Health:
    """Answer when runs can be stored and started."""
    return await app.health.ready()
