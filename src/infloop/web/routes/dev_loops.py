"""Development loops that run beside the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from infloop.application.dev_loops import MAX_LINES, DevLog, DevLoopList
from infloop.application.models import to_json
from infloop.web.dependencies import WebDependencies
from infloop.web.errors import documented
from infloop.web.routing import App, Dependencies, Who, router
from infloop.web.streams import STREAM, EventStream, frame

ROUTER = router("development loops")

Name = Annotated[str, Path(max_length=200)]


@ROUTER.get("/api/dev")
async def list_dev_loops(app: App) -> DevLoopList:
    """List the development loops that run now, with their processes."""
    return await asyncio.to_thread(app.dev_loops.all)


@ROUTER.get("/api/dev/events", response_class=Response, responses=STREAM)
async def dev_events(web: Dependencies) -> Response:
    """Stream the development loops: as they are now, and again after each change."""
    return EventStream(_changes(web), web.streams)


async def _changes(web: WebDependencies) -> AsyncGenerator[bytes]:
    number = 0
    async for found in web.application.dev_loops.follow():
        number += 1
        yield frame({"type": "dev_loops", **to_json(found)}, str(number))


@ROUTER.get("/api/dev/{name}/log", responses=documented(404))
async def read_dev_log(
    name: Name, app: App, lines: Annotated[int, Query(ge=1, le=MAX_LINES)] = 200
) -> DevLog:
    """Return the last lines of a process or hook."""
    return await asyncio.to_thread(app.dev_loops.logs, name, lines)


@ROUTER.get("/api/dev/{name}/log/events", response_class=Response, responses=STREAM)
async def dev_log_events(name: Name, web: Dependencies) -> Response:
    """Stream the output of a process or hook: its last lines, and then what it writes."""
    return EventStream(_output(name, web), web.streams)


async def _output(name: str, web: WebDependencies) -> AsyncGenerator[bytes]:
    number = 0
    async for output in web.application.dev_loops.follow_log(name):
        number += 1
        yield frame({"type": "dev_log", **to_json(output)}, str(number))


@ROUTER.post("/api/dev/{name}/restart", status_code=204, responses=documented(404, 409))
async def restart_process(name: Name, app: App, who: Who) -> None:
    """Restart a process; a server without a token does not."""
    await app.dev_loops.restart(name, who)
