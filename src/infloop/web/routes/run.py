"""Start a run, read the latest one, stop it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header
from pydantic import Field

from infloop.application.runs.models import LatestRun, RunPromise
from infloop.web.errors import documented
from infloop.web.routing import App, Body, Who, router

ROUTER = router("run")


class RunRequest(Body):
    """Which workflow to run, with which inputs, and in which directory of the server."""

    workflow_id: str
    inputs: dict[str, Any] = Field(default_factory=dict)
    cwd: str | None = None


class StopRequest(Body):
    """Which run to stop; without an id, the latest one."""

    run_id: str | None = None


@ROUTER.post("/api/run", status_code=202, responses=documented(404, 422))
async def start_run(
    body: RunRequest,
    app: App,
    who: Who,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> RunPromise:
    """Put a run into the queue. With an `Idempotency-Key` seen within a day, return the first."""
    return await app.runs.enqueue(
        body.workflow_id,
        body.inputs,
        who,
        directory=body.cwd,
        idempotency_key=idempotency_key or "",
    )


@ROUTER.get("/api/run")
async def read_state(app: App) -> LatestRun:
    """Return the latest run as it is now."""
    return await app.history.latest()


@ROUTER.post("/api/run/stop", responses=documented(404, 409))
async def stop_run(app: App, who: Who, body: StopRequest | None = None) -> LatestRun:
    """Stop a run as `cancel` does; without an id, the latest live one, if there is one."""
    await app.runs.cancel_latest(who, body.run_id if body else None)
    return await app.history.latest()
