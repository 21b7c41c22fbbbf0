"""The workflow file: Infinite Loop's format with our additions, every node and field.

A node type is one class here: its configuration (with the titles, descriptions and defaults that
forms, documents and the JSON Schema are made of), the handles it leaves by, and the outputs it
gives to the nodes after it. Then it is named in `Node` and `NODE_MODELS`, and that is all.

How a file becomes a `Workflow` is in `parsing`; whether it makes sense is for `check` to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field

from infloop.model.isolation import RequestedLevel
from infloop.model.schema import Document, FileModel, Flag, Number, Whole, field, publish, required
from infloop.model.texts import HostPattern
from infloop.model.values import JsonObject, JsonValue

if TYPE_CHECKING:
    from collections.abc import Mapping

ERROR_MESSAGE = {"errorMessage": "Why the step failed; absent when it did not."}


class Position(FileModel):
    """Where a node is drawn."""

    x: Number = field(0.0, "X", "Pixels from the left.")
    y: Number = field(0.0, "Y", "Pixels from the top.")


class Size(FileModel):
    """How large a container is drawn."""

    width: Number = field(0.0, "Width", "Pixels.")
    height: Number = field(0.0, "Height", "Pixels.")


class NodeBase(FileModel):
    """What every node has."""

    handles: ClassVar[tuple[str, ...]] = ("next", "error")
    outputs: ClassVar[Mapping[str, str]] = {}
    # Outputs that hold more than one value, so that a reference may go on inside them.
    nested_outputs: ClassVar[frozenset[str]] = frozenset()
    holds_nodes: ClassVar[bool] = False

    id: str = field("", "Id", "The node's name; references use it: {{id.output}}.")
    label: str | None = field(None, "Label", "What the console shows instead of the id.")
    position: Position = field(Position(), "Position", "Where the node is drawn.")
    size: Size | None = field(None, "Size", "How large a container is drawn.")
    children: tuple[Node, ...] = field(
        (), "Children", "The nodes inside a loop or parallel.", exclude_if=lambda nodes: not nodes
    )

    def exits(self) -> tuple[str, ...]:
        """Return the handles that this node can leave by."""
        return self.handles

    def output_names(self) -> tuple[str, ...]:
        """Return the outputs that this node can give."""
        return tuple(self.outputs)


def _leaf_schema(schema: dict[str, Any]) -> None:
    schema["properties"].pop("children")
    schema["required"] = ["id", "type"]


LEAF = ConfigDict(json_schema_extra=_leaf_schema)


class NoConfig(FileModel):
    """Nothing to configure."""


class StartNode(NodeBase):
    """Where a run begins."""

    model_config = ConfigDict(title="Start", **LEAF)
    handles = ("next",)

    type: Literal["start"] = field("start", "Type", "start")
    config: NoConfig = field(NoConfig(), "Configuration", "None; inputs belong to the workflow.")


class EndConfig(FileModel):
    """How the run ends."""

    outcome: Literal["succeeded", "failed"] = field(
        "succeeded", "Outcome", "What the run, branch or called workflow ends as."
    )


class EndNode(NodeBase):
    """Ends the run, or the branch or called workflow it is in, through all loops around it."""

    model_config = ConfigDict(title="End", **LEAF)
    handles = ()

    type: Literal["end"] = field("end", "Type", "end")
    config: EndConfig = field(EndConfig(), "Configuration", "How the run ends.")


class AgentConfig(FileModel):
    """Whom to ask, what, and where."""

    provider_id: str = field("claude", "Provider", "The id of a provider manifest.")
    prompt: str = field("", "Prompt", "What the agent is asked to do.", template=True)
    cwd: str | None = field(
        None, "Directory", "Where the agent works; the run's directory if empty.", template=True
    )
    timeout_ms: Whole = field(
        0, "Time limit (ms)", "The agent is stopped after this long; 0 means no limit."
    )
    profile: str | None = field(
        None,
        "Profile",
        "The model that the agent is to use; its provider's default if empty.",
        template=True,
    )
    agent: str | None = field(
        None, "Agent", "The named agent that a CLI provider should act as.", template=True
    )
    use_worktree: Flag = field(
        default=False,
        title="Run in isolated git worktree",
        description="Work on a copy of the repository at the directory.",
    )
    worktree_ref: str | None = field(
        None,
        "Worktree from",
        "The commit or branch the worktree starts at; HEAD if empty.",
        template=True,
    )
    include_uncommitted: Flag = field(
        default=False,
        title="With uncommitted changes",
        description="The worktree begins with what is changed and not committed in the directory.",
    )
    worktree_include: tuple[str, ...] = field(
        (),
        "Worktree includes",
        "Ignored files that the worktree needs as well, by glob: .env, config/*.local.",
    )
    on_rate_limit: Literal["fail", "wait"] = field(
        "fail",
        "At a usage limit",
        "Fail, or wait until the limit is lifted and ask again; the wait survives restarts.",
    )
    rate_limit_max_wait_ms: Whole = field(
        21_600_000, "Longest wait (ms)", "A usage limit that is lifted later fails the step."
    )
    idle_timeout_ms: Whole = field(
        0, "Idle limit", "An agent that says nothing for so long is ended as stalled; 0 means none."
    )
    continue_session: Flag = field(
        default=False,
        title="Continue its session",
        description="In a loop, the next round continues the agent's own session where it can.",
    )
    skip_permissions: Flag = field(
        default=False,
        title="Skip permission prompts (dangerous)",
        description="Add the manifest's dangerousArgs: the agent acts without asking.",
    )


class AgentNode(NodeBase):
    """Asks an agent (a CLI, an HTTP model or a script of turns) to do something."""

    model_config = ConfigDict(title="Agent", **LEAF)
    outputs: ClassVar[Mapping[str, str]] = {
        "stdout": "All that the agent said.",
        "result": "Its last message.",
        "transcript": "What it said and the tools it used.",
        "stderr": "Its diagnostics.",
        "exitCode": "Its exit code; absent when it was stopped.",
        "durationMs": "How long it took.",
        "timedOut": "Whether it ran into its time limit.",
        "tokens": "Tokens used: input, output, cached.",
        "costUsd": "Reported cost in US dollars; absent when unknown.",
        "sessionId": "The agent's own name for the conversation.",
        "sessionTokens": "Tokens of the whole conversation: input, output, cached, cacheWrite.",
        "sessionCostUsd": "Reported cost of the whole conversation; absent when unknown.",
        "worktreePath": "The worktree it worked in, if any.",
        **ERROR_MESSAGE,
    }
    nested_outputs = frozenset({"tokens", "sessionTokens"})

    type: Literal["agent"] = field("agent", "Type", "agent")
    config: AgentConfig = field(AgentConfig(), "Configuration", "Whom to ask, what, and where.")


class ScriptConfig(FileModel):
    """Inline code with a top-level function `run`."""

    language: Literal["ts", "py"] = field("ts", "Language", "TypeScript or Python.")
    inputs: dict[str, JsonValue] = field(
        {}, "Inputs", "Arguments of run, by position in this order.", template=True
    )
    outputs: tuple[str, ...] = field((), "Outputs", "Keys of the returned object to give on.")
    code: str = field("", "Code", "The script. References in it are not filled in; use inputs.")
    cwd: str | None = field(
        None, "Directory", "Where the script runs; the run's directory if empty.", template=True
    )
    timeout_ms: Whole = field(
        60_000,
        "Time limit (ms)",
        "The script is stopped after this long; 0 means as late as the operator allows.",
    )


class ScriptNode(NodeBase):
    """Runs inline Python or TypeScript."""

    model_config = ConfigDict(title="Script", **LEAF)
    outputs: ClassVar[Mapping[str, str]] = {
        "result": "What run returned, types kept.",
        "stdout": "What the script printed.",
        "stderr": "Its diagnostics.",
        "exitCode": "Its exit code; absent when it was stopped.",
        "durationMs": "How long it took.",
        "timedOut": "Whether it ran into its time limit.",
        "language": "ts or py.",
        **ERROR_MESSAGE,
    }
    nested_outputs = frozenset({"result"})

    type: Literal["script"] = field("script", "Type", "script")
    config: ScriptConfig = field(ScriptConfig(), "Configuration", "The code and its arguments.")

    def output_names(self) -> tuple[str, ...]:
        """Return the fixed outputs and the declared ones."""
        return (*self.outputs, *self.config.outputs)


class Sentinel(FileModel):
    """A text or pattern to look for."""

    pattern: str = field("", "Pattern", "What to look for.", template=True)
    is_regex: Flag = field(
        default=False, title="Regular expression", description="Take the pattern as one (RE2)."
    )


class Command(FileModel):
    """A shell command whose exit code decides."""

    cmd: str = field(
        "",
        "Command",
        "A shell line. A reference in it becomes an environment variable, never shell text.",
        template=True,
    )
    env: dict[str, str] = field({}, "Environment", "Variables for the command.", template=True)
    cwd: str | None = field(
        None, "Directory", "Where it runs; the run's directory if empty.", template=True
    )
    timeout_ms: Whole = field(
        30_000,
        "Time limit (ms)",
        "The command is stopped after this long; 0 means as late as the operator allows.",
    )


class Rubric(FileModel):
    """A question for a model that answers met or not met."""

    rubric: str = field("", "Rubric", "What the text must fulfil.", template=True)
    model: str | None = field(None, "Model", "The provider's default if empty.", template=True)
    provider_id: str | None = field(None, "Provider", "Who judges; claude if empty.")


class ConditionConfig(FileModel):
    """What to check, and how. Parts of the kinds that are not chosen are kept and ignored."""

    kind: Literal["sentinel", "command", "judge"] = field(
        "sentinel", "Kind", "Look for a text, run a command, or ask a model."
    )
    against: str | None = field(
        None, "Against", "The text to check; what the step before said if missing.", template=True
    )
    sentinel: Sentinel | None = field(None, "Sentinel", "For kind sentinel.")
    command: Command | None = field(None, "Command", "For kind command.")
    judge: Rubric | None = field(None, "Judge", "For kind judge.")
    cwd: str | None = field(
        None, "Directory", "Where a command runs, unless it names its own.", template=True
    )


class ConditionNode(NodeBase):
    """Met or not met. Directly in a loop, met ends the loop and not met begins the next round."""

    model_config = ConfigDict(title="Condition", **LEAF)
    handles = ("met", "not_met", "error")
    outputs: ClassVar[Mapping[str, str]] = {
        "met": "Whether the condition holds.",
        "detail": "Why.",
        "stdout": "What a command printed.",
        "stderr": "A command's diagnostics.",
        "exitCode": "A command's exit code.",
        **ERROR_MESSAGE,
    }

    type: Literal["condition"] = field("condition", "Type", "condition")
    config: ConditionConfig = field(ConditionConfig(), "Configuration", "What to check, and how.")


class LoopConfig(FileModel):
    """How often the body runs."""

    max_iterations: Whole = field(100, "Rounds at most", "The loop goes on at next after these.")
    mode: str | None = field(None, "Mode", "Accepted for older files; it has no effect.")
    infinite: Flag = field(
        default=False,
        title="Without end",
        description="Ignore the number of rounds; budgets still hold.",
    )
    no_progress_limit: Flag | Whole = field(
        default=False,
        title="No progress",
        description=(
            "Stop when so many rounds in a row ended with the same files and the same answer of "
            "the condition; true means 3, false or 0 never."
        ),
    )


class LoopNode(NodeBase):
    """Repeats its children, from the first on, until a condition is met or rounds run out."""

    model_config = ConfigDict(title="Loop", **required("id", "type"))
    outputs: ClassVar[Mapping[str, str]] = {
        "iterations": "How many rounds began.",
        "broke": "Whether a condition ended it, not the number of rounds.",
        "noProgress": "Whether it was stopped because nothing changed any more.",
        **ERROR_MESSAGE,
    }
    holds_nodes = True

    type: Literal["loop"] = field("loop", "Type", "loop")
    config: LoopConfig = field(LoopConfig(), "Configuration", "How often the body runs.")


class BranchConfig(FileModel):
    """A comparison of two texts."""

    lhs: str = field("", "Left", "The text that is compared.", template=True)
    op: Literal["==", "!=", "contains", "matches"] = field(
        "==", "Operator", "How; matches takes the right side as a regular expression (RE2)."
    )
    rhs: str = field("", "Right", "The text it is compared with.", template=True)


class BranchNode(NodeBase):
    """Goes one way or the other."""

    model_config = ConfigDict(title="If", **LEAF)
    handles = ("true", "false", "error")
    outputs: ClassVar[Mapping[str, str]] = {
        "result": "Whether the comparison holds.",
        "lhs": "The left text.",
        "op": "The operator.",
        "rhs": "The right text.",
        "error": "Why it could not be compared.",
        **ERROR_MESSAGE,
    }

    type: Literal["branch"] = field("branch", "Type", "branch")
    config: BranchConfig = field(BranchConfig(), "Configuration", "A comparison of two texts.")


class ParallelConfig(FileModel):
    """What settles it."""

    mode: Literal["wait-all", "race", "quorum"] = field(
        "wait-all", "Mode", "All must succeed, the first success wins, or quorumN must succeed."
    )
    quorum_n: Whole | None = field(None, "Quorum", "How many must succeed, for mode quorum.")
    on_error: Literal["fail-fast", "best-effort"] = field(
        "fail-fast", "On error", "Fail at the first failure, or when the goal is out of reach."
    )


class ParallelNode(NodeBase):
    """Runs its branches at the same time. A branch begins at each child no sibling leads to."""

    model_config = ConfigDict(title="Parallel", **required("id", "type"))
    handles = ("all_done", "first_done", "quorum_met", "error")
    success: ClassVar[Mapping[str, str]] = {
        "wait-all": "all_done",
        "race": "first_done",
        "quorum": "quorum_met",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "mode": "The mode.",
        "completed": "How many branches succeeded.",
        "failed": "How many failed.",
        "children": "By branch: status, error, and outputs by node.",
        "winner": "The branch that won a race.",
        "winners": "The branches that made the quorum.",
        **ERROR_MESSAGE,
    }
    nested_outputs = frozenset({"children", "winners"})
    holds_nodes = True

    type: Literal["parallel"] = field("parallel", "Type", "parallel")
    config: ParallelConfig = field(ParallelConfig(), "Configuration", "What settles it.")

    def exits(self) -> tuple[str, ...]:
        """Return the one success handle of the mode, and error."""
        return (self.success[self.config.mode], "error")


class SubworkflowConfig(FileModel):
    """Which workflow, with what, for what."""

    workflow_id: str = field("", "Workflow", "The id of the workflow to call.")
    inputs: dict[str, JsonValue] = field(
        {}, "Inputs", "Values for its inputs, by name.", template=True
    )
    outputs: dict[str, str] = field({}, "Outputs", "Name here: path there, such as agent-1.stdout.")


class SubworkflowNode(NodeBase):
    """Calls another workflow, which sees only what it is passed."""

    model_config = ConfigDict(title="Subworkflow", **LEAF)
    outputs: ClassVar[Mapping[str, str]] = {"status": "How it ended.", **ERROR_MESSAGE}

    type: Literal["subworkflow"] = field("subworkflow", "Type", "subworkflow")
    config: SubworkflowConfig = field(SubworkflowConfig(), "Configuration", "What to call.")

    def output_names(self) -> tuple[str, ...]:
        """Return the fixed outputs and the declared ones."""
        return (*self.outputs, *self.config.outputs)


class JudgeConfig(FileModel):
    """What is compared, and by what."""

    criteria: str = field("", "Criteria", "What makes a candidate good.", template=True)
    candidates: tuple[str, ...] = field((), "Candidates", "At least two texts.", template=True)
    judge_prompt: str | None = field(
        None, "Judge's instructions", "Instead of the usual ones.", template=True
    )
    model: str | None = field(None, "Model", "The provider's default if empty.", template=True)
    provider_id: str | None = field(None, "Provider", "Who judges; claude if empty.")


class JudgeNode(NodeBase):
    """Asks a model which of several candidates is best."""

    model_config = ConfigDict(title="Judge", **LEAF)
    outputs: ClassVar[Mapping[str, str]] = {
        "winner_index": "The number of the best candidate, from 0.",
        "winner": "Its text.",
        "scores": "One number from 1 to 10 per candidate.",
        "reasoning": "Why.",
        "raw": "The answer, when it could not be read.",
        **ERROR_MESSAGE,
    }
    nested_outputs = frozenset({"scores"})

    type: Literal["judge"] = field("judge", "Type", "judge")
    config: JudgeConfig = field(JudgeConfig(), "Configuration", "What is compared, and by what.")


class SidenoteConfig(FileModel):
    """The note."""

    text: str = field("", "Text", "For people; it has no effect.")


class SidenoteNode(NodeBase):
    """A note on the canvas."""

    model_config = ConfigDict(title="Sidenote", **LEAF)
    handles = ()

    type: Literal["sidenote"] = field("sidenote", "Type", "sidenote")
    config: SidenoteConfig = field(SidenoteConfig(), "Configuration", "The note.")


Node: TypeAlias = Annotated[
    StartNode
    | EndNode
    | AgentNode
    | ScriptNode
    | ConditionNode
    | LoopNode
    | BranchNode
    | ParallelNode
    | SubworkflowNode
    | JudgeNode
    | SidenoteNode,
    Field(discriminator="type"),
]

NODE_MODELS: Mapping[str, type[NodeBase]] = {
    "start": StartNode,
    "end": EndNode,
    "agent": AgentNode,
    "script": ScriptNode,
    "condition": ConditionNode,
    "loop": LoopNode,
    "branch": BranchNode,
    "parallel": ParallelNode,
    "subworkflow": SubworkflowNode,
    "judge": JudgeNode,
    "sidenote": SidenoteNode,
}


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
