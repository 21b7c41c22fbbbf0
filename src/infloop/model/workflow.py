"""The workflow file: Infinite Loop's format with our additions.

Node types are in `nodes`. How bytes become a `Workflow` is in `parsing`; whether a workflow makes
sense is decided by `check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from infloop.model.isolation import RequestedLevel
from infloop.model.nodes import Node
from infloop.model.repository_address import HEAD, Ref, Repository
from infloop.model.schema import (
    Document,
    FileModel,
    Flag,
    Milliseconds,
    Number,
    Whole,
    field,
    publish,
)
from infloop.model.texts import HostPattern, Label
from infloop.model.values import JsonObject, JsonValue

if TYPE_CHECKING:
    from collections.abc import Mapping


class Edge(FileModel):
    """The node that follows a handle. Edges of nested nodes are in the same list."""

    required_keys = ("source", "target")

    id: str = field("", "Id", "The edge's name.")
    source: str = field("", "From", "The id of the node where it begins.")
    source_handle: str = field("next", "Handle", "The handle of that node.")
    target: str = field("", "To", "The id of the node that follows.")
    target_handle: str | None = field(None, "Target handle", "Where the console draws its end.")


class InputSpec(FileModel):
    """A declared input of a workflow."""

    required_keys = ("name", "type")

    name: str = field("", "Name", "References use it: {{inputs.name}}.")
    type: Literal["string", "number", "boolean", "text"] = field(
        "string", "Type", "The accepted type; text is a string with several lines in a form."
    )
    default: JsonValue = field(
        None, "Default", "The value if none is given; without a default the input is required."
    )
    description: str | None = field(None, "Description", "What it is for.")


class RunLimits(FileModel):
    """The limits of a run. A workflow can only lower what the operator allows."""

    protects = True

    loop_names: ClassVar[Mapping[str, str]] = {
        "maxNodeExecutions": "steps",
        "maxDurationMs": "time",
        "maxCostUsd": "cost",
        "maxConcurrentRuns": "runs",
    }

    max_node_executions: Whole | None = field(None, "Steps", "The most nodes a run may visit.")
    max_duration_ms: Milliseconds | None = field(None, "Time (ms)", "The longest a run may take.")
    max_cost_usd: Number | None = field(None, "Cost (USD)", "The most its agents may spend.")
    max_concurrent_runs: Whole | None = field(
        None, "Runs at once", "How many runs of this workflow are live, in all processes together."
    )


class Untrusted(FileModel):
    """What an untrusted value may reach, for example one from the sender of a webhook."""

    protects = True

    agents: Literal["never", "sandboxed-only", "text", "any"] = field(
        "sandboxed-only",
        "Agents and judges",
        "Nothing; as text, if they are confined; as text, also at level `host`; or anything, "
        "including their directory.",
    )
    commands: Literal["never", "env", "any"] = field(
        "env",
        "Commands and scripts",
        "Nothing; variables, arguments and standard input; or shell lines and directories too.",
    )


class Workspace(FileModel):
    """The repository in which a run works: whoever starts the run fetches it."""

    required_keys = ("repository",)
    protects = True

    repository: Repository = field(
        "",
        "Repository",
        "Its address: https://host/path, ssh://user@host/path, or the full path of a repository. "
        "The operator must allow it (INFLOOP_REPOSITORIES).",
    )
    ref: Ref = field(
        HEAD, "Ref", "The branch, tag or commit with which it starts; HEAD is the default branch."
    )


class Workflow(Document):
    """A graph of nodes that a run executes."""

    model_title = "Workflow"
    required_keys = ("id", "name", "nodes", "edges")
    loop_defaults: ClassVar[JsonObject] = {"strict": True}
    protective_fields = frozenset(
        {
            *("egress", "egressAllowlist", "isolation", "limits", "strict", "untrusted"),
            *("allowLocal", "readPaths", "writePaths", "workspace"),
        }
    )

    id: str = field("", "Id", "The workflow's name; a plain file name, and its file's name.")
    name: str = field("", "Name", "Its name for people.")
    description: str | None = field(None, "Description", "What it is for.")
    version: Whole = field(1, "Version", "The number of times it was saved.")
    created_at: Whole | None = field(None, "Created", "Milliseconds since 1970.")
    updated_at: Whole | None = field(None, "Changed", "Milliseconds since 1970.")
    inputs: tuple[InputSpec, ...] | None = field(
        None,
        "Inputs",
        "The inputs of a run. Without this key, every {{inputs.name}} is an optional text.",
    )
    globals: dict[str, str] = field({}, "Globals", "Fixed texts; {{globals.name}} in any node.")
    nodes: tuple[Node, ...] = field((), "Nodes", "The nodes of the graph.")
    edges: tuple[Edge, ...] = field((), "Edges", "The edges between them.")
    on_crash: Literal["fail", "resume"] = field(
        "fail", "After a crash", "Record an interrupted run as failed, or resume it."
    )
    on_budget: Literal["fail", "pause"] = field(
        "fail", "At a budget", "Fail when money runs out, or pause and wait for `infloop resume`."
    )
    strict: Flag = field(
        default=False,
        title="Strict",
        description="Fail when a loop uses up its rounds, or when nothing follows a `not_met`.",
    )
    requires: tuple[Label, ...] = field(
        (), "Requires", "Labels that a server or worker must have to run it: gpu, repo:web."
    )
    limits: RunLimits | None = field(None, "Limits", "The limits of a run.")
    isolation: RequestedLevel | None = field(
        None, "Isolation", "The weakest level at which children may run."
    )
    untrusted: Untrusted | None = field(
        None, "Untrusted values", "What an untrusted value may reach."
    )
    egress: Literal["open", "allowlist", "none"] | None = field(
        None, "Network", "Where children may connect; it can only be stricter than the operator's."
    )
    egress_allowlist: tuple[HostPattern, ...] = field(
        (), "Hosts", "Hosts that all children may connect to if there is an allowlist."
    )
    allow_local: tuple[Whole, ...] = field(
        (), "Local ports", "Services of this machine that confined children may use: 5432."
    )
    read_paths: tuple[str, ...] = field(
        (), "Paths to read", "Paths that confined children may read besides their directory."
    )
    write_paths: tuple[str, ...] = field(
        (), "Paths to write", "Paths that confined children may change besides their directory."
    )

    workspace: Workspace | None = field(
        None, "Workspace", "The repository in which a run works, in a checkout of its own."
    )

    def to_json(self) -> JsonObject:
        """Return the plain JSON form that a run executes, with defaults filled in."""
        made = super().to_json()
        made.pop("$schema", None)
        return made


def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema of a workflow file."""
    return publish(Workflow, "workflow")
