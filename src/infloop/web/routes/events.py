"""What happens, as it happens: in all runs, or in one run.

A client that reconnects says what it saw last (`Last-Event-ID`) and misses nothing of a run. On the
stream of all runs it gets a fresh snapshot when it was away for too long.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Header, Path, Query
from starlette.responses import Response

from infloop.application.models import to_json
from infloop.application.runs.live import BusItem
from infloop.model.events import Output, Recorded
from infloop.model.values import JsonValue
from infloop.web.dependencies import WebDependencies
from infloop.web.errors import documented
from infloop.web.routing import Dependencies, router
from infloop.web.streams import STREAM, EventStream, frame

ROUTER = router("events")

LastEventId = Annotated[str | None, Header(max_length=200)]


@ROUTER.get("/api/events", response_class=Response, responses=STREAM)
async def all_events(
    web: Dependencies,
    last_event_id: LastEventId = None,
    output: Annotated[
        bool, Query(description="With what steps print, and past events in the snapshot.")
    ] = True,
) -> Response:
    """Stream what happens in all runs and in the queue; a snapshot comes first."""
    return EventStream(_all_runs(web, last_event_id or "", output=output), web.streams)


@ROUTER.get(
    "/api/runs/{run_id}/events",
    response_class=Response,
    responses=STREAM | {204: {"description": "There is nothing more."}} | documented(404),
)
async def run_events(
    run_id: Annotated[str, Path(max_length=200)],
    web: Dependencies,
    last_event_id: LastEventId = None,
    after: Annotated[int, Query(ge=0, lt=1 << 62)] = 0,
) -> Response:
    """Stream a run from its beginning, or from what was seen last, to its end."""
    seen = _number(last_event_id or "") or after
    if not await web.application.live.has_more(run_id, seen):
        return Response(status_code=204)  # tells a browser not to reconnect
    return EventStream(_one_run(web, run_id, seen), web.streams)


async def _one_run(web: WebDependencies, run_id: str, after: int) -> AsyncGenerator[bytes]:
    async for batch in web.application.live.follow(run_id, after):
        yield b"".join([await web.frames.of_run(recorded) for recorded in batch])


async def _all_runs(
    web: WebDependencies, last_event_id: str, *, output: bool
) -> AsyncGenerator[bytes]:
    live = web.application.live
    prefix = f"{live.process_id}."
    reconnected = last_event_id.startswith(prefix)
    after = _number(last_event_id.removeprefix(prefix)) if reconnected else -1
    async with live.following_all() as (bus, earliest):
        if not earliest <= after <= bus.last:
            after = bus.last
            yield await _snapshot(web, f"{prefix}{after}", output=output)
        async for batch in bus.listen(after):
            missed = batch[0].number - after - 1
            after = batch[-1].number
            if missed:
                yield await _snapshot(web, f"{prefix}{after}", missed, output=output)
            # The first client encodes a frame; all others find it.
            yield b"".join(
                [
                    item.frame or await _encoded(web, item, prefix)
                    for item in batch
                    if output or not _is_output(item)
                ]
            )


def _is_output(item: BusItem) -> bool:
    return isinstance(item.message, Recorded) and isinstance(item.message.event, Output)


async def _encoded(web: WebDependencies, item: BusItem, prefix: str) -> bytes:
    """Return an item's frame, which is encoded once for all clients."""
    if not item.frame:
        name = f"{prefix}{item.number}"
        if isinstance(item.message, Recorded):
            item.frame = await web.frames.named(item.message, name)
        else:
            item.frame = frame(item.message, name)
    return item.frame


async def _snapshot(web: WebDependencies, name: str, missed: int = 0, *, output: bool) -> bytes:
    history = web.application.history
    latest = to_json(await (history.latest() if output else history.latest(max_events=0)))
    live: list[JsonValue] = [*web.application.history.live_runs()]
    message = {"type": "state_snapshot", **latest, "live": live, "missed": missed}
    return frame(message, name)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
