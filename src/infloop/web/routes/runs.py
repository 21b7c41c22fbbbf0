"""Runs: list, search, read, cancel, resume, rewind, compare."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field

from infloop.errors import NotFound, UsageError
from infloop.model.events import Output
from infloop.model.messages import expand
from infloop.model.values import JsonObject
from infloop.runtime.timeline import spans
from infloop.store.interfaces.queue import QueueEntry
from infloop.store.interfaces.run_log import RunRow, SearchHit, StoredStatus
from infloop.web.errors import Refused, documented
from infloop.web.routing import CorrelationId, Parts, Shape, Who, router
from infloop.web.state import in_full, last_events, queued, summary

ROUTER = router("runs")

MOST = 500
RunId = Annotated[str, Path(max_length=200)]


class RunList(Shape):
    """Runs, the newest first; `next` is what to pass as `before` for those after them."""

    runs: list[dict[str, Any]]
    next: str | None = None


class RunAnswer(Shape):
    """A run."""

    run: dict[str, Any]


class EventPage(Shape):
    """Events of a run; `next` is what to pass as `after` for those that follow."""

    events: list[dict[str, Any]]
    next: int | None = None


class ResumeRequest(Shape):
    """How a run goes on: what it may spend in all, and whether it is taken from a stuck process."""

    max_cost_usd: float | None = Field(None, gt=0, allow_inf_nan=False)
    take_over: bool = False


class RewindRequest(Shape):
    """The step, or the round such as `loop-1[3]`, from which a new run begins."""

    step: str


class Begun(Shape):
    """A run that goes on."""

    run_id: str
    correlation_id: str


class DirectoryDiff(Shape):
    """What a run, or a step of it, did to a directory."""

    directory: str
    patch: str


class Diff(Shape):
    """What changed, by directory."""

    directories: list[DirectoryDiff]


Status = Literal["running", "stalled", "interrupted", "paused", "succeeded", "failed", "cancelled"]


@ROUTER.get("/api/runs", responses=documented(404))
async def list_runs(
    parts: Parts,
    workflow_id: Annotated[str | None, Query(alias="workflowId", max_length=200)] = None,
    status: Status | None = None,
    search: Annotated[str | None, Query(max_length=500)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
    before: Annotated[str | None, Query(max_length=200)] = None,
) -> RunList:
    """List runs, the newest first; with `search`, those in which all its words occur."""
    found: list[JsonObject] = []
    async for row, hit in _candidates(parts, workflow_id, status, search, before):
        shown = await summary(parts.service, row)
        if status in (None, shown["status"]):
            found.append(shown | (_match(hit) if hit else {}))
        if len(found) == limit:
            return RunList(runs=found, next=None if search else row.id)
    return RunList(runs=found)


@ROUTER.get("/api/runs/{run_id}", responses=documented(404))
async def read_run(run_id: RunId, parts: Parts) -> RunAnswer:
    """Return a run, also one that waits in the queue or goes on."""
    found = await parts.dispatcher.find(run_id)
    if isinstance(found, QueueEntry):
        return RunAnswer(run=queued(found))
    return RunAnswer(run=await in_full(parts.service, run_id))


@ROUTER.get("/api/runs/{run_id}/log", responses=documented(404))
async def read_log(
    run_id: RunId,
    parts: Parts,
    after: Annotated[int, Query(ge=0, lt=1 << 62)] = 0,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
    output: Annotated[bool, Query(description="With what steps printed.")] = True,
) -> EventPage:
    """Return a page of what a run recorded, as the event stream shows it."""
    await parts.service.store.run_log.run(run_id)
    batch = await parts.service.store.run_log.events(
        run_id, after, limit=limit, include_output=output
    )
    events = [
        message
        for recorded in batch
        if output or not isinstance(recorded.event, Output)
        for message in expand(recorded)
    ]
    return EventPage(events=events, next=batch[-1].seq if batch else None)


@ROUTER.get("/api/runs/{run_id}/diff", responses=documented(404))
async def read_diff(
    run_id: RunId, parts: Parts, step: Annotated[str, Query(max_length=1_000)] = ""
) -> Diff:
    """Return what a run, or one step or round of it, changed in the directories it worked in."""
    await parts.service.store.run_log.run(run_id)
    found = await spans(parts.service.store.run_log, run_id, step)
    store = parts.workspaces.store
    return Diff(
        directories=[
            DirectoryDiff(
                directory=span.directory, patch=await store.patch(span.before, span.after)
            )
            for span in found
        ]
    )


@ROUTER.post("/api/runs/{run_id}/cancel", status_code=202, responses=documented(404, 409))
async def cancel_run(run_id: RunId, parts: Parts, who: Who, correlation_id: CorrelationId) -> Begun:
    """Stop a run, whichever process drives it; one that waits leaves the queue."""
    service = parts.service
    found = await parts.dispatcher.find(run_id)
    if isinstance(found, QueueEntry):
        await parts.audit.record("queue.removed", who, correlation_id=correlation_id, run_id=run_id)
        if not await parts.dispatcher.remove(found.run.id):
            raise Refused(409, "not-waiting", f"run {run_id!r} does not wait any more")
        return Begun(run_id=run_id, correlation_id=correlation_id)
    status = await service.status(found)
    if status in ("succeeded", "failed", "cancelled"):
        raise Refused(409, "finished", f"run {run_id!r} has {status} already")
    await parts.audit.record("run.stopped", who, correlation_id=correlation_id, run_id=run_id)
    try:
        await service.cancel(found, "stopped through the API")
    except UsageError as error:
        raise Refused(409, "cannot-cancel", str(error)) from None
    return Begun(run_id=run_id, correlation_id=correlation_id)


@ROUTER.post("/api/runs/{run_id}/resume", status_code=202, responses=documented(404, 409))
async def resume_run(
    run_id: RunId,
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
    asked: ResumeRequest | None = None,
) -> Begun:
    """Let a run go on that paused or whose process died; no finished step runs again."""
    chosen = asked or ResumeRequest()
    await parts.service.store.run_log.run(run_id)
    await parts.audit.record("run.resumed", who, correlation_id=correlation_id, run_id=run_id)
    try:
        await parts.service.resume(
            run_id, take_over=chosen.take_over, max_cost_usd=chosen.max_cost_usd
        )
    except UsageError as error:
        raise Refused(409, "cannot-resume", str(error)) from None
    return Begun(run_id=run_id, correlation_id=correlation_id)


@ROUTER.post("/api/runs/{run_id}/rewind", status_code=202, responses=documented(404, 409))
async def rewind_run(
    run_id: RunId, asked: RewindRequest, parts: Parts, who: Who, correlation_id: CorrelationId
) -> Begun:
    """Begin a new run from a step of this one, with the files as they were then."""
    await parts.service.store.run_log.run(run_id)
    await parts.audit.record(
        "run.rewound",
        who,
        correlation_id=correlation_id,
        run_id=run_id,
        details={"step": asked.step},
    )
    try:
        new = await parts.service.rewind(run_id, asked.step)
    except UsageError as error:
        raise Refused(409, "cannot-rewind", str(error)) from None
    return Begun(run_id=new, correlation_id=correlation_id)


@ROUTER.get("/api/runs/{workflow_id}/{run_id}", responses=documented(404))
async def read_record(
    workflow_id: Annotated[str, Path(max_length=200)], run_id: RunId, parts: Parts
) -> RunAnswer:
    """Return a run's record: its scope, and its newest events once it has ended."""
    row = await parts.service.store.run_log.run(run_id)
    if row.workflow_id != workflow_id:
        raise NotFound(f"workflow {workflow_id[:80]!r} has no run {run_id!r}")
    shown = await in_full(parts.service, run_id)
    if row.finished_at is not None:
        shown |= {"events": list(await last_events(parts.service, row))}
    return RunAnswer(run=shown)


async def _candidates(
    parts: Parts,
    workflow_id: str | None,
    status: str | None,
    search: str | None,
    before: str | None,
) -> AsyncIterator[tuple[RunRow, SearchHit | None]]:
    """Yield runs, the newest first, that may be meant."""
    run_log = parts.service.store.run_log
    if search:
        for hit in await run_log.search(search, limit=MOST):
            if workflow_id in (None, hit.run.workflow_id):
                yield hit.run, hit
        return
    place = (await run_log.run(before)).cursor if before else None
    while page := await run_log.runs(
        workflow_id=workflow_id, status=_stored(status), limit=200, before=place
    ):
        for row in page:
            yield row, None
        place = page[-1].cursor


def _stored(status: str | None) -> StoredStatus | None:
    return "running" if status in ("stalled", "interrupted") else status  # type: ignore[return-value]


def _match(hit: SearchHit) -> JsonObject:
    return {"match": {"step": hit.path, "in": hit.kind, "text": hit.snippet, "places": hit.matches}}
