"""The queue: which runs wait, and taking one out."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from infloop.application.runs.queue import QueueList
from infloop.web.errors import documented
from infloop.web.routing import App, Who, router

ROUTER = router("queue")


@ROUTER.get("/api/triggers/queue")
async def read_queue(app: App) -> QueueList:
    """Return the runs that wait for their turn."""
    return await app.queue.all()


@ROUTER.delete("/api/triggers/queue/{queue_id}", status_code=204, responses=documented(404))
async def remove_from_queue(
    queue_id: Annotated[str, Path(max_length=200)], app: App, who: Who
) -> None:
    """Take a waiting run out of the queue."""
    await app.queue.remove(queue_id, who)
