"""The queue: which runs wait, and taking one out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path

from infloop.errors import NotFound
from infloop.model.values import JsonObject
from infloop.store.queue import QueueEntry
from infloop.web.errors import Refused, documented
from infloop.web.routing import CorrelationId, Parts, Shape, Who, router

ROUTER = router("queue")


class QueueAnswer(Shape):
    """What waits, in its order; `held` says why nothing begins at the moment."""

    size: int
    head: dict[str, Any] | None
    items: list[dict[str, Any]]
    held: str


@ROUTER.get("/api/triggers/queue")
async def read_queue(parts: Parts) -> QueueAnswer:
    """Return the runs that wait for their turn."""
    entries = await parts.dispatcher.queue.entries()
    items = [_item(entry) for entry in entries]
    return QueueAnswer(
        size=len(items),
        head=items[0] if items else None,
        items=items,
        held=parts.dispatcher.held,
    )


@ROUTER.delete("/api/triggers/queue/{queue_id}", status_code=204, responses=documented(404))
async def remove_from_queue(
    queue_id: Annotated[str, Path(max_length=200)],
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
) -> None:
    """Take a waiting run out of the queue."""
    try:
        entry = await parts.dispatcher.queue.entry(queue_id)
    except NotFound as error:
        raise Refused(404, "not-in-queue", str(error)) from None
    await parts.audit.record(
        "queue.removed", who, correlation_id=correlation_id, run_id=entry.run.run_id
    )
    if not await parts.dispatcher.remove(queue_id):
        raise Refused(404, "not-in-queue", f"{queue_id!r} does not wait: it is {entry.state}")


def _item(entry: QueueEntry) -> JsonObject:
    run = entry.run
    return {
        "queueId": run.id,
        "runId": run.run_id,
        "triggerId": run.extra.get("triggerId", ""),
        "workflowId": run.workflow_id,
        "inputs": run.inputs,
        "receivedAt": run.queued_at,
        "position": entry.position,
        "state": entry.state,
        "priority": run.priority,
    }
