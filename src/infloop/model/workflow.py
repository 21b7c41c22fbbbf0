"""The workflow file: Infinite Loop's format with our additions.

Node types are in `nodes`. How bytes become a `Workflow` is in `parsing`; whether a workflow makes
sense is decided by `check`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from infloop.model.isolation import RequestedLevel
from infloop.model.nodes import Node
from infloop.model.schema import Document, FileModel, Number, Whole, field, publish, required
from infloop.model.texts import HostPattern
from infloop.model.values import JsonObject, JsonValue


class Edge(FileModel):
    """What follows when a node leaves by a handle. Edges of nested nodes are in the same list."""

    model_config = required("source", "target")

    id: str = field("", "Id", "The edge's name.")
    source: str = field("", "From", "The id of the node that is left.")
    source_handle: str = field("next", "Handle", "The handle it is left by.")
    target: str = field("", "To", "The id of the node that follows.")
    target_handle: str | None = field(None, "Target handle", "Where the console draws its end.")


class InputSpec(FileModel):
    """A value that a run is given."""

    model_config = required("name", "type")

    name: str = field("", "Name", "References use it: {{inputs.name}}.")
    type: Literal["string", "number", "boolean", "text"] = field(
        "string", "Type", "What is accepted; text is a string that a form shows in several lines."
    )
    default: JsonValue = field(
        None, "Default", "Used when no value is given; without one it must be."
    )
    description: str | None = field(None, "Description", "What it is for.")


class RunLimits(FileModel):
    """What a run may use up. A workflow can only lower what the operator allows."""

    max_node_executions: Whole | None = field(None, "Steps", "The most nodes a run may visit.")
    max_duration_ms: Whole | None = field(None, "Time (ms)", "The longest a run may take.")
    max_cost_usd: Number | None = field(None, "Cost (USD)", "The most its agents may spend.")
    max_concurrent_runs: Whole | None = field(
        None, "Runs at once", "The most runs of this workflow that a server drives at once."
    )


class Untrusted(FileModel):
    """What a value from outside may reach: one that a webhook's sender filled in, say."""

    agents: Literal["never", "sandboxed-only", "any"] = field(
        "sandboxed-only",
        "Agents and judges",
        "Nothing; as text, where they are confined; or anything, their directory included.",
    )
    commands: Literal["never", "env", "any"] = field(
        "env",
        "Commands and scripts",
        "Nothing; variables, arguments and standard input; or also shell lines and directories.",
    )


class Workflow(Document):
    """A graph of nodes that a run walks through."""

    model_config = ConfigDict(title="Workflow", **required("id", "name", "nodes", "edges"))

    id: str = field("", "Id", "The workflow's name; a plain file name, and its file's name.")
    name: str = field("", "Name", "What people call it.")
    description: str | None = field(None, "Description", "What it is for.")
    version: Whole = field(1, "Version", "Counts saves.")
    created_at: Whole | None = field(None, "Created", "Milliseconds since 1970.")
    updated_at: Whole | None = field(None, "Changed", "Milliseconds since 1970.")
    inputs: tuple[InputSpec, ...] | None = field(
        None,
        "Inputs",
        "What a run is given. Without this key, every {{inputs.name}} is an optional text.",
    )
    globals: dict[str, str] = field({}, "Globals", "Fixed texts; {{globals.name}} in any node.")
    nodes: tuple[Node, ...] = field((), "Nodes", "What can be done.")
    edges: tuple[Edge, ...] = field((), "Edges", "What follows what.")
    on_crash: Literal["fail", "resume"] = field(
        "fail", "After a crash", "Record an interrupted run as failed, or go on with it."
    )
    on_budget: Literal["fail", "pause"] = field(
        "fail", "At a budget", "Fail when money runs out, or pause and wait for `infloop resume`."
    )
    limits: RunLimits | None = field(None, "Limits", "What a run may use up.")
    isolation: RequestedLevel | None = field(
        None, "Isolation", "How strongly children are confined at least."
    )
    untrusted: Untrusted | None = field(
        None, "Untrusted values", "What a value from outside may reach."
    )
    egress: Literal["open", "allowlist", "none"] | None = field(
        None, "Network", "Where children may connect to at most; only stricter than the operator's."
    )
    egress_allowlist: tuple[HostPattern, ...] = field(
        (), "Hosts", "Hosts that all children may connect to where there is an allowlist."
    )
    allow_local: tuple[Whole, ...] = field(
        (), "Local ports", "Services of this machine that confined children may use: 5432."
    )
    read_paths: tuple[str, ...] = field(
        (), "Paths to read", "What confined children may read beside their directory."
    )
    write_paths: tuple[str, ...] = field(
        (), "Paths to write", "What confined children may change beside their directory."
    )

    def to_json(self) -> JsonObject:
        """Return the plain JSON form that a run executes, defaults filled in."""
        return self.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"schema_uri"}
        )


def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema of a workflow file."""
    return publish(Workflow, "workflow")
