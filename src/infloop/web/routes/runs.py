"""Runs: list, search, read, cancel, resume, rewind, compare."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from infloop.application.runs.apply import ApplyAnswer
from infloop.application.runs.explain import Explanation
from infloop.application.runs.models import (
    Cancellation,
    ChangeList,
    Diff,
    EventPage,
    RewindPlan,
    RunAnswer,
    RunPage,
    RunStatus,
    RunWorkflow,
    StartedRun,
)
from infloop.application.runs.statistics import Grouping, RunStatistics
from infloop.application.runs.step_list import StepPage
from infloop.web.errors import documented
from infloop.web.routing import App, Body, Who, router

ROUTER = router("runs")

RunId = Annotated[str, Path(max_length=200)]
StepPath = Annotated[str, Query(max_length=1_000)]
Everything = Annotated[
    bool, Query(alias="all", description="With files that a check made or that git ignores.")
]
Names = list[Annotated[str, Field(max_length=300)]]
Include = Annotated[
    Names | None, Query(max_length=20, description="Files of that kind to show: paths or patterns.")
]


class ResumeRequest(Body):
    """How a run goes on: what it may spend in all, and whether it is taken from a stuck process."""

    max_cost_usd: float | None = Field(None, gt=0, allow_inf_nan=False)
    take_over: bool = False


class RewindRequest(Body):
    """The step, or the round such as `loop-1[3]`, from which a new run begins.

    With `currentWorkflow` it goes on with the workflow as it is now, if everything before the step
    is the same.
    """

    step: str
    current_workflow: bool = False


class ApplyRequest(Body):
    """Where changes go, and which of them.

    `node` says whose changes, if several agents made some. With `branch` they become a commit there
    instead of changes in the work tree. `allow` are protected files that may change. `all` and
    `include` also take files that are otherwise left out.
    """

    node: str | None = Field(None, max_length=200)
    branch: str | None = Field(None, max_length=200)
    allow: Names = Field(default_factory=list, max_length=1_000)
    everything: bool = Field(default=False, alias="all")
    include: Names = Field(default_factory=list, max_length=20)


@ROUTER.get("/api/runs", responses=documented(404))
async def list_runs(
    app: App,
    workflow_id: Annotated[str | None, Query(alias="workflowId", max_length=200)] = None,
    status: RunStatus | None = None,
    search: Annotated[str | None, Query(max_length=500)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[str | None, Query(max_length=200)] = None,
    activity: Annotated[bool, Query(description="Say where each run is.")] = False,
) -> RunPage:
    """List runs, newest first; with `search`, those in which all its words occur."""
    return await app.history.page(
        workflow_id=workflow_id,
        status=status,
        search=search,
        limit=limit,
        before=before,
        activity=activity,
    )


@ROUTER.get("/api/runs/stats")
async def read_statistics(
    app: App,
    since: Annotated[date, Query(description="Runs that began on or after this day.")],
    by: Grouping = "day",
    workflow_id: Annotated[str | None, Query(alias="workflowId", max_length=200)] = None,
) -> RunStatistics:
    """Return how runs ended and what they cost, by day or by workflow."""
    return await app.history.statistics(by, since, workflow_id)


@ROUTER.get("/api/runs/{run_id}", responses=documented(404))
async def read_run(run_id: RunId, app: App) -> RunAnswer:
    """Return a run, also one that waits in the queue or is running."""
    return RunAnswer(run=await app.history.detail(run_id))


@ROUTER.get("/api/runs/{run_id}/why", responses=documented(404))
async def explain_run(run_id: RunId, app: App) -> Explanation:
    """Return why a run started, waits or stopped, and what to do next."""
    return await app.explanations.explain(run_id)


@ROUTER.get("/api/runs/{run_id}/workflow", responses=documented(404))
async def read_run_workflow(run_id: RunId, app: App) -> RunWorkflow:
    """Return the workflow as the run has it, whatever became of the file since."""
    return await app.history.workflow(run_id)


@ROUTER.get("/api/runs/{run_id}/steps", responses=documented(404))
async def read_steps(
    run_id: RunId,
    app: App,
    after: Annotated[int, Query(ge=0, lt=1 << 62)] = 0,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
) -> StepPage:
    """Return a page of the visits of a run's nodes, in the order in which they began."""
    return await app.history.steps(run_id, after, limit)


@ROUTER.get("/api/runs/{run_id}/log", responses=documented(404))
async def read_log(
    run_id: RunId,
    app: App,
    after: Annotated[int, Query(ge=0, lt=1 << 62)] = 0,
    before: Annotated[
        int | None, Query(ge=0, lt=1 << 62, description="Read backwards; `after` is ignored.")
    ] = None,
    step: Annotated[
        str, Query(max_length=1_000, description="A step, with everything inside it.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
    output: Annotated[bool, Query(description="With what steps printed.")] = True,
) -> EventPage:
    """Return a page of a run's events, as the event stream shows them; or the page before one."""
    if before is not None:
        return await app.history.log_before(run_id, before, limit, output=output, step=step)
    return await app.history.log(run_id, after, limit, output=output, step=step)


@ROUTER.get("/api/runs/{run_id}/diff", responses=documented(404))
async def read_diff(
    run_id: RunId,
    app: App,
    step: StepPath = "",
    everything: Everything = False,
    include: Include = None,
) -> Diff:
    """Return what a run, or one step or round of it, changed: what `infloop apply` would take."""
    return await app.history.diff(run_id, step, everything=everything, include=include or ())


@ROUTER.get("/api/runs/{run_id}/changes", responses=documented(404))
async def read_changes(
    run_id: RunId,
    app: App,
    step: StepPath = "",
    everything: Everything = False,
    include: Include = None,
) -> ChangeList:
    """Return which files `diff` shows, with the lines added and removed."""
    return await app.history.changes(run_id, step, everything=everything, include=include or ())


@ROUTER.post("/api/runs/{run_id}/apply", responses=documented(404, 409))
async def apply_run(run_id: RunId, body: ApplyRequest, app: App, who: Who) -> ApplyAnswer:
    """Apply what agents changed in their worktrees to the work tree, or to a branch."""
    result = await app.apply.apply(
        run_id,
        who,
        node=body.node,
        branch=body.branch,
        allow=body.allow,
        everything=body.everything,
        include=body.include,
    )
    return ApplyAnswer(result=result)


@ROUTER.post("/api/runs/{run_id}/cancel", status_code=202, responses=documented(404, 409))
async def cancel_run(run_id: RunId, app: App, who: Who) -> Cancellation:
    """Stop a run, whichever process drives it; one that waits leaves the queue."""
    return await app.runs.cancel(run_id, who)


@ROUTER.post("/api/runs/{run_id}/resume", status_code=202, responses=documented(404, 409))
async def resume_run(
    run_id: RunId, app: App, who: Who, body: ResumeRequest | None = None
) -> StartedRun:
    """Go on with a run that paused or whose process died; no finished step runs again."""
    chosen = body or ResumeRequest()
    return await app.runs.resume(
        run_id, who, take_over=chosen.take_over, max_cost_usd=chosen.max_cost_usd
    )


@ROUTER.post("/api/runs/{run_id}/rewind", status_code=202, responses=documented(404, 409))
async def rewind_run(run_id: RunId, body: RewindRequest, app: App, who: Who) -> StartedRun:
    """Begin a new run from a step of this one, with the files as they were then."""
    return await app.runs.rewind(run_id, body.step, who, current=body.current_workflow)


@ROUTER.get("/api/runs/{run_id}/rewind", responses=documented(404, 409))
async def plan_rewind(run_id: RunId, app: App, step: StepPath) -> RewindPlan:
    """Return what a rewind to a step would keep, run again, and change in directories."""
    return await app.runs.plan_rewind(run_id, step)


@ROUTER.get("/api/runs/{workflow_id}/{run_id}", responses=documented(404))
async def read_record(
    workflow_id: Annotated[str, Path(max_length=200)], run_id: RunId, app: App
) -> RunAnswer:
    """Return a run's record: its scope, and its newest events once it has ended."""
    return RunAnswer(run=await app.history.record(workflow_id, run_id))
