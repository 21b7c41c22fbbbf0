"""The processes that drive runs."""

from __future__ import annotations

from infloop.application.workers import WorkerList
from infloop.web.routing import App, router

ROUTER = router("workers")


@ROUTER.get("/api/workers")
async def list_workers(app: App) -> WorkerList:
    """List servers, workers and other processes that drive runs."""
    return await app.workers.all()
