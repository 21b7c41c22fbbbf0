"""One tool per workflow, which puts a run into the queue and answers at once.

The folders are read for each call, so a workflow that was saved meanwhile is there, and one that
is broken is left out and breaks no other.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.errors import UsageError, WorkflowError
from infloop.mcp_server.naming import tool_names
from infloop.mcp_server.tools import Tool
from infloop.model.events import Cause
from infloop.model.inputs import InputError
from infloop.model.references import implicit_inputs, workflow_inputs
from infloop.model.values import compact_json
from infloop.policy.taint import refusals, told
from infloop.runtime.runs.dispatch import Asked
from infloop.store.queue import Full

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.catalog import Bundle
    from infloop.mcp_server.dependencies import McpParts
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject
    from infloop.model.workflow import InputSpec, Workflow

PRIORITY = 10
"""Somebody waits for these runs, as for those that the API starts."""

MOST_ARGUMENT_BYTES = 1 << 20
MOST_DESCRIPTION = 1_000

HOW = (
    "Puts a run into the queue and returns its runId at once; it does not wait. Then use "
    "infloop_wait_for_run or infloop_get_run_status, and infloop_read_result."
)


async def workflow_tools(parts: McpParts, reserved: Collection[str]) -> list[Tool]:
    """Return a tool for each workflow that can be run."""
    found = await asyncio.to_thread(_readable, parts, reserved)
    return [_tool(name, workflow) for name, workflow in found.items()]


async def find_workflow_tool(parts: McpParts, name: str, reserved: Collection[str]) -> Tool | None:
    """Return the tool of that name; one whose workflow is broken says so when it is called."""
    found = await asyncio.to_thread(_named, parts, reserved)
    return _bare_tool(name, found[name]) if name in found else None


def _named(parts: McpParts, reserved: Collection[str]) -> dict[str, str]:
    return tool_names((entry.id for entry in parts.workflows.entries()), reserved)


def _readable(parts: McpParts, reserved: Collection[str]) -> dict[str, Workflow]:
    readable: dict[str, Workflow] = {}
    known = parts.known_providers()
    for name, workflow_id in _named(parts, reserved).items():
        try:
            bundle = parts.workflows.load_bundle(workflow_id, known_providers=known)
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


@dataclass(frozen=True, slots=True)
class _Start:
    """Starts one workflow."""

    workflow_id: str

    async def __call__(self, parts: McpParts, call: Call) -> JsonObject:
        await parts.service.refuse_if_spent()
        bundle = await asyncio.to_thread(self._bundle, parts)
        inputs = _inputs(bundle.root, call.arguments)
        cause = Cause("mcp", call.caller.way, untrusted=_untrusted(inputs, call.arguments))
        _refuse_untrusted(parts, bundle, cause)
        caller, now = call.caller, parts.clock.now_ms()
        trigger_id = f"mcp_{now}_{secrets.token_hex(4)}"
        await parts.audit.record(
            "run.queued",
            caller.actor,
            correlation_id=caller.correlation_id,
            workflow_id=self.workflow_id,
            details={"via": "mcp"},
        )
        put = await parts.dispatcher.put(
            Asked(
                self.workflow_id,
                inputs,
                cause,
                parts.workdir,
                caller.correlation_id,
                trigger_id,
                priority=PRIORITY,
            )
        )
        if isinstance(put, Full):
            raise UsageError(f"{put.limit} runs wait already; try again when some have begun")
        return {
            "status": "queued",
            "queueId": put.id,
            "runId": put.run_id,
            "position": put.position,
            "workflowId": self.workflow_id,
            "triggerId": trigger_id,
            "correlationId": caller.correlation_id,
        }

    def _bundle(self, parts: McpParts) -> Bundle:
        known = parts.known_providers()
        return parts.workflows.load_bundle(self.workflow_id, known_providers=known)


def _inputs(workflow: Workflow, arguments: JsonObject) -> JsonObject:
    """Return the run's inputs; raise UsageError with what the workflow takes."""
    specs = workflow.inputs
    known = implicit_inputs(workflow) if specs is None else [spec.name for spec in specs]
    there = f"it takes: {', '.join(known)}" if known else "it takes none"
    extra = next((name for name in arguments if name not in known), None)
    if extra is not None:
        raise UsageError(f"workflow {workflow.id!r} takes no {extra[:60]!r}; {there}")
    if len(compact_json(arguments).encode()) > MOST_ARGUMENT_BYTES:
        raise UsageError(
            f"the arguments are larger than {MOST_ARGUMENT_BYTES} bytes; put long texts into a "
            "file and give its path"
        )
    try:
        return workflow_inputs(workflow, arguments)
    except InputError as error:
        if error.reason == "required":
            raise UsageError(f"{error.field!r} is missing; {there}") from None
        raise UsageError(
            f"{error.field!r} must be a {error.expected}, not {error.got}; {there}"
        ) from None


def _untrusted(inputs: JsonObject, arguments: JsonObject) -> tuple[str, ...]:
    return tuple(name for name in inputs if name in arguments)


def _refuse_untrusted(parts: McpParts, bundle: Bundle, cause: Cause) -> None:
    """Say at once what the run would be refused for when its turn comes."""
    confined = not parts.service.why_host
    found = refusals(bundle.plain(), bundle.root.id, cause.untrusted, confined=confined)
    if found:
        raise WorkflowError(told(found))
