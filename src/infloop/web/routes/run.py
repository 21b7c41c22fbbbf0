"""Start a run, look at the latest one, stop it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import Header
from pydantic import Field

from infloop.catalog import Bundle
from infloop.catalog.workflows import is_workflow_id
from infloop.errors import NotFound, UsageError
from infloop.model.events import Cause
from infloop.model.problems import short_repr
from infloop.model.references import workflow_inputs
from infloop.model.values import JsonObject
from infloop.runtime.runs.dispatch import Asked
from infloop.store.queue import Full
from infloop.web.dependencies import WebParts
from infloop.web.errors import Refused, documented
from infloop.web.routes.runs import cancel_run
from infloop.web.routing import CorrelationId, Parts, Shape, Who, router
from infloop.web.state import latest_state

ROUTER = router("run")

PRIORITY = 10
"""Somebody waits for these runs, so they overtake those of triggers."""


class RunRequest(Shape):
    """Which workflow to run, with which inputs, and in which directory of the server."""

    workflow_id: str
    inputs: dict[str, Any] = Field(default_factory=dict)
    cwd: str | None = None


class RunPromised(Shape):
    """A run that will begin when there is room; `position` 1 is next."""

    run_id: str
    queue_id: str
    position: int
    correlation_id: str
    state: dict[str, Any]


class RunState(Shape):
    """The latest run: its status, where it is, its scope, its last events."""

    state: dict[str, Any]


class StopRequest(Shape):
    """Which run to stop; the latest one if it is not said."""

    run_id: str | None = None


@ROUTER.post("/api/run", status_code=202, responses=documented(404, 422))
async def start_run(
    asked: RunRequest,
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> RunPromised:
    """Put a run into the queue. With an `Idempotency-Key` seen within a day, return the first."""
    await parts.service.refuse_if_spent()
    bundle = await asyncio.to_thread(_bundle, parts, asked.workflow_id)
    inputs = workflow_inputs(bundle.root, asked.inputs)
    workdir = await asyncio.to_thread(_directory, parts, asked.cwd)
    await parts.audit.record(
        "run.queued", who, correlation_id=correlation_id, workflow_id=asked.workflow_id
    )
    put = await parts.dispatcher.put(
        Asked(
            asked.workflow_id,
            inputs,
            Cause("api", who.kind),
            workdir,
            correlation_id,
            priority=PRIORITY,
            key=f"api:{asked.workflow_id}:{idempotency_key}" if idempotency_key else "",
        )
    )
    if isinstance(put, Full):
        raise Refused(
            503,
            "queue-full",
            f"{put.limit} runs wait already; try again when some have begun",
            headers={"retry-after": "30"},
        )
    state: JsonObject = {
        "status": "queued",
        "runId": put.run_id,
        "workflowId": asked.workflow_id,
        "iterationByLoopId": {},
        "scope": {"inputs": inputs},
        "events": [],
    }
    return RunPromised(
        run_id=put.run_id,
        queue_id=put.id,
        position=put.position,
        correlation_id=correlation_id,
        state=state,
    )


@ROUTER.get("/api/run")
async def read_state(parts: Parts) -> RunState:
    """Return the latest run as it is now."""
    return RunState(state=await latest_state(parts.service))


@ROUTER.post("/api/run/stop", responses=documented(404, 409))
async def stop_run(
    parts: Parts, who: Who, correlation_id: CorrelationId, asked: StopRequest | None = None
) -> RunState:
    """Stop a run as `cancel` does; without an id, the latest one that goes on, if there is one."""
    named = asked.run_id if asked else None
    run_id = named or next(reversed(parts.service.live()), None)
    if run_id is not None:
        await cancel_run(run_id, parts, who, correlation_id)
    return RunState(state=await latest_state(parts.service))


def _bundle(parts: WebParts, workflow_id: str) -> Bundle:
    """Return a checked workflow by its id: never by a path, whatever the id looks like."""
    if not is_workflow_id(workflow_id):
        raise NotFound(f"there is no workflow {short_repr(workflow_id)}")
    catalog = parts.places.workflows
    try:
        catalog.find(workflow_id)
    except UsageError as error:
        raise NotFound(str(error)) from None
    return catalog.load_bundle(workflow_id, known_providers=parts.known_providers())


def _directory(parts: WebParts, chosen: str | None) -> str:
    if chosen is None:
        return str(parts.places.workdir)
    path = Path(chosen)
    if not path.is_absolute() or not path.is_dir():
        raise UsageError(f"cwd {short_repr(chosen)} is not the full path of a directory")
    return str(path)  # where it leads counts when the run begins
