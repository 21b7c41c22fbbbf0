"""One tool per workflow, which puts a run into the queue and answers at once.

The folders are read for each call, so a workflow that was saved meanwhile is there, and one that
is broken is left out and breaks no other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from infloop.application.models import to_json
from infloop.errors import UsageError, WorkflowError
from infloop.mcp_server.naming import tool_names
from infloop.mcp_server.tools import Tool
from infloop.model.inputs import InputError
from infloop.model.references import implicit_inputs

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject
    from infloop.model.workflow import InputSpec, Workflow

MOST_DESCRIPTION = 1_000

HOW = (
    "Puts a run into the queue and returns its runId at once; it does not wait. Then use "
    "infloop_wait_for_run or infloop_get_run_status, and infloop_read_result."
)


async def workflow_tools(mcp: McpDependencies, reserved: Collection[str]) -> list[Tool]:
    """Return a tool for each workflow that can be run."""
    found = await asyncio.to_thread(_readable, mcp, reserved)
    return [_tool(name, workflow) for name, workflow in found.items()]


async def find_workflow_tool(
    mcp: McpDependencies, name: str, reserved: Collection[str]
) -> Tool | None:
    """Return the tool of that name; one whose workflow is broken says so when it is called."""
    found = await asyncio.to_thread(_named, mcp, reserved)
    return _bare_tool(name, found[name]) if name in found else None


def _named(mcp: McpDependencies, reserved: Collection[str]) -> dict[str, str]:
    return tool_names(mcp.application.workflows.ids(), reserved)


def _readable(mcp: McpDependencies, reserved: Collection[str]) -> dict[str, Workflow]:
    readable: dict[str, Workflow] = {}
    for name, workflow_id in _named(mcp, reserved).items():
        try:
            bundle = mcp.application.workflows.load(workflow_id)
        except (UsageError, WorkflowError):
            continue
        readable[name] = bundle.root
    return readable


# -- what a tool says of itself --------------------------------------------------------------


def _tool(name: str, workflow: Workflow) -> Tool:
    about = _one_line(workflow.description or workflow.name or workflow.id).removesuffix(".")
    runs = f"Runs the workflow {workflow.id!r}: {about}. {HOW}"
    return Tool(
        name,
        _one_line(workflow.name or workflow.id),
        runs,
        input_schema(workflow),
        _Start(workflow.id),
    )


def _bare_tool(name: str, workflow_id: str) -> Tool:
    return Tool(name, workflow_id, "", {"type": "object"}, _Start(workflow_id))


def _one_line(text: str) -> str:
    """Return a text of a file as one line without characters that steer; a client shows it."""
    cut = text[:MOST_DESCRIPTION]
    return " ".join("".join(char if char.isprintable() else " " for char in cut).split())


def input_schema(workflow: Workflow) -> JsonObject:
    """Return the JSON Schema of what a run of the workflow is given."""
    specs = workflow.inputs
    if specs is None:
        texts: JsonObject = {name: {"type": "string"} for name in implicit_inputs(workflow)}
        return {"type": "object", "properties": texts, "additionalProperties": False}
    schema: JsonObject = {
        "type": "object",
        "properties": {spec.name: _property(spec) for spec in specs},
        "additionalProperties": False,
    }
    required = [spec.name for spec in specs if spec.default is None]
    return schema | ({"required": list(required)} if required else {})


def _property(spec: InputSpec) -> JsonObject:
    described: JsonObject = {"type": "string" if spec.type == "text" else spec.type}
    if spec.default is not None:
        described["default"] = spec.default
    if spec.description:
        described["description"] = _one_line(spec.description)
    return described


# -- starting --------------------------------------------------------------------------------


class _Start(msgspec.Struct, frozen=True):
    """Puts a run of one workflow into the queue."""

    workflow_id: str

    async def __call__(self, mcp: McpDependencies, call: Call) -> JsonObject:
        try:
            promise = await mcp.application.runs.enqueue(
                self.workflow_id, call.arguments, call.caller
            )
        except InputError as error:
            workflow = await asyncio.to_thread(mcp.application.workflows.load, self.workflow_id)
            raise UsageError(_explained(error, workflow.root)) from None
        answer = to_json(promise)
        del answer["state"]
        return answer


def _explained(error: InputError, workflow: Workflow) -> str:
    specs = workflow.inputs
    known = implicit_inputs(workflow) if specs is None else [spec.name for spec in specs]
    there = f"it takes: {', '.join(known)}" if known else "it takes none"
    if error.reason == "required":
        return f"{error.field!r} is missing; {there}"
    return f"{error.field!r} must be a {error.expected}, not {error.got}; {there}"
