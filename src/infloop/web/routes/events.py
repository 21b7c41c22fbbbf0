"""What happens, as it happens: of all runs of this server, or of one run.

A client that comes back says what it saw last (`Last-Event-ID`) and misses nothing of a run. Of the
stream of all runs it gets a fresh snapshot when it was away for too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import Header, Path, Query
from starlette.responses import Response

from infloop.model.events import Recorded
from infloop.model.values import JsonValue
from infloop.runtime.event_bus import Item
from infloop.store.base import RunRow
from infloop.store.queue import QueueEntry
from infloop.web.dependencies import WebParts
from infloop.web.errors import documented
from infloop.web.routing import Parts, router
from infloop.web.state import latest_state
from infloop.web.streams import EventStream, frame

ROUTER = router("events")

LOOK_SECONDS = 0.2
"""How soon it is seen that a run has left the queue."""

LastEventId = Annotated[str | None, Header(max_length=200)]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events; each `data` is one JSON object with its `type`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@ROUTER.get("/api/events", response_class=Response, responses=_STREAM)
async def all_events(parts: Parts, last_event_id: LastEventId = None) -> Response:
    """Stream what happens in all runs and in the queue; a snapshot comes first."""
    return EventStream(_news(parts, last_event_id or ""), parts.streams)


@ROUTER.get(
    "/api/runs/{run_id}/events",
    response_class=Response,
    responses=_STREAM | {204: {"description": "There is nothing more."}} | documented(404),
)
async def run_events(
    run_id: Annotated[str, Path(max_length=200)],
    parts: Parts,
    last_event_id: LastEventId = None,
    after: Annotated[int, Query(ge=0, lt=1 << 62)] = 0,
) -> Response:
    """Stream a run from its beginning, or from what was seen last, to its end."""
    found = await parts.dispatcher.find(run_id)
    seen = _number(last_event_id or "") or after
    if _is_over(found, seen):
        return Response(status_code=204)  # tells a browser not to come back
    return EventStream(_of_run(parts, run_id, seen), parts.streams)


def _is_over(found: RunRow | QueueEntry, seen: int) -> bool:
    if isinstance(found, QueueEntry):
        return not found.is_waiting
    return found.finished_at is not None and seen >= found.last_seq


async def _of_run(parts: WebParts, run_id: str, after: int) -> AsyncGenerator[bytes]:
    while isinstance(entry := await parts.dispatcher.find(run_id), QueueEntry):
        if not entry.is_waiting:
            return
        await asyncio.sleep(LOOK_SECONDS)
    async for batch in parts.service.listen(run_id, after):
        yield b"".join([await parts.frames.of_run(recorded) for recorded in batch])


async def _news(parts: WebParts, last_event_id: str) -> AsyncGenerator[bytes]:
    news, prefix = parts.service.news, f"{parts.service.instance.id}."
    came_back = last_event_id.startswith(prefix)
    after = _number(last_event_id.removeprefix(prefix)) if came_back else -1
    if not 0 <= after <= news.last:
        after = news.last
        yield await _snapshot(parts, f"{prefix}{after}")
    async for batch in news.listen(after):
        missed = batch[0].number - after - 1
        after = batch[-1].number
        if missed:
            yield await _snapshot(parts, f"{prefix}{after}", missed)
        # All but the first client find the frames made, and need not wait for each.
        yield b"".join([item.frame or await _framed(parts, item, prefix) for item in batch])


async def _framed(parts: WebParts, item: Item, prefix: str) -> bytes:
    """Return an item as it is written, which is found out once for all clients."""
    if not item.frame:
        name = f"{prefix}{item.number}"
        said = item.said
        if isinstance(said, Recorded):
            item.frame = await parts.frames.named(said, name)
        else:
            item.frame = frame(said, name)
    return item.frame


async def _snapshot(parts: WebParts, name: str, missed: int = 0) -> bytes:
    state = await latest_state(parts.service)
    live: list[JsonValue] = [*parts.service.live()]
    return frame({"type": "state_snapshot", "state": state, "live": live, "missed": missed}, name)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
