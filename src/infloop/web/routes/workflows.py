"""Workflows: list, read, check, save, delete."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from fastapi import Request

from infloop.catalog.saving import (
    as_count,
    check_to_save,
    content_of,
    delete_workflow,
    save_workflow,
)
from infloop.catalog.workflows import is_workflow_id
from infloop.errors import NotFound, UsageError, WorkflowError
from infloop.model.problems import shown
from infloop.web.dependencies import Places
from infloop.web.errors import ShownProblem, documented, problem_objects
from infloop.web.routing import CorrelationId, Parts, Shape, Who, router

ROUTER = router("workflows")


class WorkflowEntry(Shape):
    """A workflow in a list."""

    id: str
    name: str
    version: int
    updated_at: int
    source: Literal["user", "library"]
    problems: int


class WorkflowList(Shape):
    """All workflows, the newest first; yours hide presets of the same id."""

    workflows: list[WorkflowEntry]


class WorkflowAnswer(Shape):
    """A workflow, and what is doubtful about it."""

    workflow: dict[str, Any]
    problems: list[ShownProblem]


class Problems(Shape):
    """Everything that is wrong with a workflow."""

    problems: list[ShownProblem]


# What is sent is a workflow file; `/api/catalog` has its JSON Schema.
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A workflow; its JSON Schema is in `/api/catalog`.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@ROUTER.get("/api/workflows")
async def list_workflows(parts: Parts) -> WorkflowList:
    """List all workflows, the newest first."""
    found = await asyncio.to_thread(_entries, parts.places)
    return WorkflowList(workflows=sorted(found, key=lambda each: (-each.updated_at, each.id)))


@ROUTER.post("/api/workflows", status_code=201, responses=documented(409, 422), openapi_extra=_BODY)
async def make_workflow(
    request: Request, parts: Parts, who: Who, correlation_id: CorrelationId
) -> WorkflowAnswer:
    """Save a workflow under its own id. One that exists is replaced if `version` is its own."""
    return await _save(await request.body(), "", parts, who, correlation_id)


@ROUTER.post("/api/workflows/check", openapi_extra=_BODY)
async def check_workflow(request: Request, parts: Parts) -> Problems:
    """Say everything that is wrong with a workflow, without saving it."""
    data = await request.body()
    _, found = await asyncio.to_thread(parts.places.workflows.examine, data)
    return Problems.model_validate({"problems": problem_objects(found)})


@ROUTER.get("/api/workflows/{workflow_id}", responses=documented(404, 422))
async def read_workflow(workflow_id: str, parts: Parts) -> WorkflowAnswer:
    """Return a workflow, brought to today's format."""
    return await asyncio.to_thread(_read, parts.places, workflow_id)


@ROUTER.put("/api/workflows/{workflow_id}", responses=documented(409, 422), openapi_extra=_BODY)
async def save(
    workflow_id: str, request: Request, parts: Parts, who: Who, correlation_id: CorrelationId
) -> WorkflowAnswer:
    """Save a workflow. Its `version` must be the one that was loaded; nothing is lost otherwise."""
    return await _save(await request.body(), workflow_id, parts, who, correlation_id)


@ROUTER.delete("/api/workflows/{workflow_id}", status_code=204, responses=documented(404))
async def delete(workflow_id: str, parts: Parts, who: Who, correlation_id: CorrelationId) -> None:
    """Delete one of your workflows; presets cannot be deleted."""
    _name(workflow_id)
    await parts.audit.record(
        "workflow.deleted", who, correlation_id=correlation_id, workflow_id=workflow_id
    )
    await asyncio.to_thread(delete_workflow, parts.places.workflows, workflow_id)


async def _save(
    data: bytes, workflow_id: str, parts: Parts, who: Who, correlation_id: str
) -> WorkflowAnswer:
    catalog = parts.places.workflows
    checked = await asyncio.to_thread(check_to_save, catalog, data, workflow_id)
    await parts.audit.record(
        "workflow.saved", who, correlation_id=correlation_id, workflow_id=checked.id
    )
    saved = await asyncio.to_thread(save_workflow, catalog, checked, parts.clock.now_ms())
    return WorkflowAnswer.model_validate(
        {"workflow": saved, "problems": problem_objects(checked.warnings)}
    )


def _entries(places: Places) -> list[WorkflowEntry]:
    entries = []
    for entry in places.workflows.entries():
        header = content_of(entry.path)
        entries.append(
            WorkflowEntry(
                id=entry.id,
                name=entry.name,
                version=as_count(header.get("version")) or 1,
                updated_at=as_count(header.get("updatedAt")),
                source=entry.origin,
                problems=len(entry.problems),
            )
        )
    return entries


def _read(places: Places, workflow_id: str) -> WorkflowAnswer:
    _name(workflow_id)
    try:
        path, parsed = places.workflows.read(workflow_id)
    except UsageError as error:
        raise NotFound(str(error)) from None
    if parsed.workflow is None:
        raise WorkflowError(f"{path.name!r} cannot be read", parsed.problems)
    return WorkflowAnswer.model_validate(
        {"workflow": parsed.workflow.to_json(), "problems": problem_objects(parsed.problems)}
    )


def _name(workflow_id: str) -> None:
    """Raise NotFound for what cannot be a workflow's id: it names no file, here or elsewhere."""
    if not is_workflow_id(workflow_id):
        raise NotFound(f"there is no workflow {shown(workflow_id)}")
