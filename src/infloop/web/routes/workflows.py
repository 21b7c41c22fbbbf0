"""Workflows: list, read, check, save, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request

from infloop.application.workflow_drafts import LoopFileText, StarterWorkflow
from infloop.application.workflow_overview import WorkflowOverviewList
from infloop.application.workflows import ProblemList, ReferenceList, WorkflowDetail
from infloop.web.errors import documented
from infloop.web.routing import App, Body, Who, router

ROUTER = router("workflows")


class StarterRequest(Body):
    """The id of a new workflow; the agent may be left out."""

    id: str
    agent: str = ""


class FileBody(Body):
    """A file that holds a workflow; its name says in which language."""

    name: str
    text: str


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A workflow; its JSON Schema is in `/api/catalog`.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@ROUTER.get("/api/workflows")
async def list_workflows(app: App) -> WorkflowOverviewList:
    """List all workflows, newest first, each with its last run."""
    return await app.workflow_overview.all()


@ROUTER.post("/api/workflows", status_code=201, responses=documented(409, 422), openapi_extra=_BODY)
async def make_workflow(request: Request, app: App, who: Who) -> WorkflowDetail:
    """Save a workflow under its own id. One that exists is replaced if `version` is its own."""
    return await app.workflows.save(await request.body(), who)


@ROUTER.post("/api/workflows/check", openapi_extra=_BODY)
async def check_workflow(request: Request, app: App) -> ProblemList:
    """Return everything that is wrong with a workflow, without saving it."""
    return await app.workflows.check(await request.body())


@ROUTER.post("/api/workflows/references", responses=documented(404, 422), openapi_extra=_BODY)
async def list_references(
    request: Request, app: App, node: Annotated[str, Query(max_length=200)]
) -> ReferenceList:
    """Return the references that exist at a node of a workflow, which may be unfinished."""
    return await app.workflows.references(await request.body(), node)


@ROUTER.post("/api/workflows/starter", responses=documented(422))
async def make_starter(body: StarterRequest, app: App) -> StarterWorkflow:
    """Return a first workflow that can run as it is; it is not saved."""
    return await app.workflow_drafts.starter(body.id, body.agent)


@ROUTER.post("/api/workflows/read", responses=documented(422))
async def read_file(body: FileBody, app: App) -> WorkflowDetail:
    """Return the workflow that a JSON file or a loop file holds; it is not saved."""
    return await app.workflow_drafts.read_file(body.name, body.text)


@ROUTER.post("/api/workflows/loop-file", responses=documented(422), openapi_extra=_BODY)
async def write_loop_file(request: Request, app: App) -> LoopFileText:
    """Return a workflow as a loop file; it is not saved."""
    return await app.workflow_drafts.as_loop_file(await request.body())


@ROUTER.get("/api/workflows/{workflow_id}", responses=documented(404, 422))
async def read_workflow(workflow_id: str, app: App) -> WorkflowDetail:
    """Return a workflow, migrated to the current format."""
    return await app.workflows.read(workflow_id)


@ROUTER.put("/api/workflows/{workflow_id}", responses=documented(409, 422), openapi_extra=_BODY)
async def save(workflow_id: str, request: Request, app: App, who: Who) -> WorkflowDetail:
    """Save a workflow. Its `version` must be the one that was loaded; nothing is lost otherwise."""
    return await app.workflows.save(await request.body(), who, workflow_id)


@ROUTER.delete("/api/workflows/{workflow_id}", status_code=204, responses=documented(404))
async def delete(workflow_id: str, app: App, who: Who) -> None:
    """Delete one of your workflows; presets cannot be deleted."""
    await app.workflows.delete(workflow_id, who)
