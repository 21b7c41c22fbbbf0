"""Node types: what a workflow file says about each, and the facts that other packages rely on.

A node type is one class here. It declares:

- its configuration, with the titles, descriptions and defaults that forms, documents and the JSON
  Schema are made from;
- the handles that it leaves by, and the outputs that it gives to later nodes;
- the facts of `NodeBase`, which the engine, the checks, the taint analysis and the views read
  instead of comparing types;
- how an editor shows it: its group, its stamp and the fields on its card;
- the rules for its own configuration, in `check`.

Then it is one line in `Node`. What a node with effects does is a file in `infloop.nodes`; the
outcome of a node without effects is a function in `infloop.engine.decide`.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Annotated,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
)

from infloop.model.problems import short_repr
from infloop.model.schema import (
    FileModel,
    Flag,
    Milliseconds,
    Number,
    Pattern,
    Selector,
    ShellLine,
    Variables,
    Whole,
    field,
)
from infloop.model.type_checks import ChosenBy
from infloop.model.values import JsonObject, JsonValue, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.node_check import NodeCheck

FrameKind: TypeAlias = Literal["round", "branch", "call"]
UntrustedRule: TypeAlias = Literal["agents", "commands"]
NodeGroup: TypeAlias = Literal["Control", "Agents", "Scripts", "Notes"]

ERROR_MESSAGE = {"errorMessage": "Why the step failed; absent when it did not."}
SESSION_OUTPUTS = ("sessionId", "sessionTokens", "sessionCostUsd")
DEFAULT_JUDGE = "claude"
LONGEST_LINE = 400


class Position(FileModel):
    """Where a node is drawn."""

    x: Number = field(0.0, "X", "Pixels from the left.")
    y: Number = field(0.0, "Y", "Pixels from the top.")


class Size(FileModel):
    """How large a container is drawn."""

    width: Number = field(0.0, "Width", "Pixels.")
    height: Number = field(0.0, "Height", "Pixels.")


class HandleChoice(NamedTuple):
    """Handles that depend on a field of the configuration: those for each of its values."""

    field: str
    handles: Mapping[str, tuple[str, ...]]


class NodeBase(FileModel):
    """What every node has.

    The class variables are the facts of a node type. `infloop.engine`, `infloop.policy` and the
    command line read them, so that a new type needs no change there. A node whose type is not
    known has the defaults: it does nothing and nothing about it is trusted.
    """

    # The handles that it can leave by, and its outputs with their meaning.
    handles: ClassVar[tuple[str, ...]] = ("next", "error")
    outputs: ClassVar[Mapping[str, str]] = {}
    # Which of the handles a node has, where that depends on its configuration.
    handle_choice: ClassVar[HandleChoice | None] = None
    # In an editor: where it is listed, three letters that stand for the type, and the paths of the
    # configuration that its card shows.
    group: ClassVar[NodeGroup] = "Control"
    stamp: ClassVar[str] = ""
    summary: ClassVar[tuple[str, ...]] = ()
    # Outputs that are lists or objects: a reference may go on inside them.
    nested_outputs: ClassVar[frozenset[str]] = frozenset()
    # Outputs that every visit has, with the values they have when a step failed before it had any.
    steady_outputs: ClassVar[JsonObject] = {}
    # Outputs that infloop makes itself: numbers, fixed words, directories that it named. They stay
    # trusted when an untrusted value went into the node.
    trusted_outputs: ClassVar[frozenset[str]] = frozenset()

    # A run begins at the first such node, and ends at a node with `is_end`.
    is_start: ClassVar[bool] = False
    is_end: ClassVar[bool] = False
    # A node that never runs is only a note: no edge may lead to it.
    runs: ClassVar[bool] = True
    # A file of `infloop.nodes` performs it: it starts a process or asks a provider.
    has_effects: ClassVar[bool] = False
    # It answers met or not met, which ends a loop or begins its next round.
    gives_verdict: ClassVar[bool] = False
    # The files that it changes are part of the result of a run, which `diff` shows.
    makes_result: ClassVar[bool] = True
    # Its step opens frames of this kind: the rounds of a loop, branches, or a called workflow.
    opens: ClassVar[FrameKind | None] = None
    # It has children.
    holds_nodes: ClassVar[bool] = False

    # Parts of the configuration of which `kind` selects one. The others are kept and ignored.
    variants: ClassVar[tuple[str, ...]] = ()
    # The field that gets the standard output of the step before when it is not configured.
    previous_output_field: ClassVar[str] = ""
    # In a loop file: the key that makes a step this type (its name if empty), and the field that
    # the value of the key is; `id` where the step is called by it.
    step_key: ClassVar[str] = ""
    main_field: ClassVar[str] = ""
    # The configuration of a newly added node. It differs from the defaults of the fields, which
    # say what a file without a field means.
    new_config: ClassVar[JsonObject] = {}

    required_keys = ("id", "type")
    # Only containers have children.
    unpublished_fields = frozenset({"children"})

    id: str = field("", "Id", "The node's name; references use it: {{id.output}}.")
    label: str | None = field(None, "Label", "What the console shows instead of the id.")
    position: Position = field(Position(), "Position", "Where the node is drawn.")
    size: Size | None = field(None, "Size", "How large a container is drawn.")
    children: tuple[Node, ...] = field(
        (), "Children", "The nodes inside a loop or parallel.", exclude_if=lambda nodes: not nodes
    )

    @classmethod
    def variant(cls, config: Mapping[str, JsonValue]) -> str:
        """Return the part that `kind` selects; empty for a type without variants."""
        return str(config.get("kind", cls.variants[0])) if cls.variants else ""

    @classmethod
    def flow_handles(cls, config: Mapping[str, JsonValue]) -> tuple[str, ...]:
        """Return the handles that lead to the next step of a loop file, unless it says more."""
        return cls.handles[:1]

    @classmethod
    def costs_money(cls, config: Mapping[str, JsonValue]) -> bool:
        """Say whether a step asks a model, so that it may cost money."""
        return False

    @classmethod
    def untrusted_rule(cls, config: Mapping[str, JsonValue]) -> UntrustedRule | None:
        """Return the rule of `untrusted` that decides what may reach the node; None if none does.

        A node that only compares texts needs no rule. A node with effects has the rule for commands
        unless its class says otherwise.
        """
        return "commands" if cls.has_effects else None

    @classmethod
    def with_steady_outputs(cls, outputs: JsonObject) -> JsonObject:
        """Return the outputs of a visit with those that every visit has."""
        return {**cls.steady_outputs, **outputs} if cls.steady_outputs else outputs

    @classmethod
    def carried_outputs(cls, config: Mapping[str, JsonValue]) -> tuple[str, ...]:
        """Return the outputs of the node's last visit that the next one gets as configuration."""
        return ()

    @classmethod
    def works_with(cls, config: Mapping[str, JsonValue]) -> str:
        """Return what a step works with, for a person: `the provider claude`."""
        return ""

    def exits(self) -> tuple[str, ...]:
        """Return the handles that this node can leave by."""
        return self.handles

    def entries(self) -> tuple[Node, ...]:
        """Return the children at which a round can begin; the first one unless a type says more."""
        return self.children[:1]

    def exits_depend_on(self) -> str:
        """Return what `exits` depends on besides the type: `mode 'race'`."""
        return ""

    def output_names(self) -> tuple[str, ...]:
        """Return the outputs that this node can give."""
        return tuple(self.outputs)

    def is_nested(self, output: str) -> bool:
        """Say whether a reference may go on inside an output."""
        return output in self.nested_outputs

    def check(self, check: NodeCheck) -> None:
        """Report a configuration with which the node could not do its work."""


class NoConfig(FileModel):
    """Nothing to configure."""


class StartNode(NodeBase):
    """Where a run begins."""

    model_title = "Start"
    stamp = "STA"
    handles = ("next",)
    is_start = True
    main_field = "id"

    type: Literal["start"] = field("start", "Type", "start")
    config: NoConfig = field(NoConfig(), "Configuration", "None; inputs belong to the workflow.")


class EndConfig(FileModel):
    """How the run ends."""

    outcome: Literal["succeeded", "failed"] = field(
        "succeeded", "Outcome", "What the run, branch or called workflow ends as."
    )


class EndNode(NodeBase):
    """Ends the run, or the branch or called workflow it is in, through all loops around it."""

    model_title = "End"
    stamp = "END"
    summary = ("outcome",)
    handles = ()
    is_end = True
    main_field = "outcome"

    type: Literal["end"] = field("end", "Type", "end")
    config: EndConfig = field(EndConfig(), "Configuration", "How the run ends.")


# Agents and commands work in worktrees in the same way.
USE_WORKTREE = field(
    default=False,
    title="Run in isolated git worktree",
    description="Work on a copy of the repository at the directory.",
)
WORKTREE = field(
    None,
    "Worktree name",
    "Nodes that name the same worktree share it; the node's own id if empty.",
)
WORKTREE_REF = field(
    None,
    "Worktree from",
    "The commit or branch that the worktree starts at; HEAD if empty.",
    template=True,
)
INCLUDE_UNCOMMITTED = field(
    default=False,
    title="With uncommitted changes",
    description="The worktree starts with the uncommitted changes of the directory.",
)
WORKTREE_INCLUDE = field(
    (),
    "Worktree includes",
    "Ignored files that the worktree needs as well, by glob: .env, config/*.local.",
)


class AgentConfig(FileModel):
    """The provider, the prompt, and where the agent works."""

    loop_names: ClassVar[Mapping[str, str]] = {"agent": "actAs"}
    loop_defaults: ClassVar[JsonObject] = {"useWorktree": True}
    protective_fields = frozenset({"useWorktree", "tools"})

    provider_id: str = field(
        "claude", "Provider", "The id of a provider manifest.", widget="provider"
    )
    prompt: str = field(
        "", "Prompt", "What the agent is asked to do.", template=True, file=True, widget="text"
    )
    cwd: Selector = field(
        None,
        "Directory",
        "Where the agent works; the run's directory if empty.",
        template=True,
        widget="directory",
    )
    timeout_ms: Milliseconds = field(
        0, "Time limit (ms)", "The agent is stopped after this long; 0 means no limit."
    )
    profile: Selector = field(
        None,
        "Profile",
        "The model that the agent uses; its provider's default if empty.",
        template=True,
        widget="profile",
    )
    agent: Selector = field(
        None,
        "Agent",
        "The named agent that a CLI provider should act as.",
        template=True,
        widget="agent",
    )
    use_worktree: Flag = USE_WORKTREE
    worktree: Selector = WORKTREE
    worktree_ref: Selector = WORKTREE_REF
    include_uncommitted: Flag = INCLUDE_UNCOMMITTED
    worktree_include: tuple[str, ...] = WORKTREE_INCLUDE
    on_rate_limit: Literal["fail", "wait"] = field(
        "fail",
        "At a usage limit",
        "Fail, or wait until the limit is lifted and ask again; the wait survives restarts.",
    )
    rate_limit_max_wait_ms: Milliseconds = field(
        21_600_000, "Longest wait (ms)", "A usage limit that is lifted later fails the step."
    )
    idle_timeout_ms: Milliseconds = field(
        0,
        "Idle limit",
        "An agent that prints nothing for this long (ms) is stopped as stalled; 0 means no limit.",
    )
    session_id: Selector = field(
        None,
        "Session",
        "The agent's own session to continue: the `sessionId` of an earlier step.",
        template=True,
    )
    tools: tuple[str, ...] | None = field(
        None,
        "Tools",
        "The only tools that the built-in agent has, by name; all of them if missing.",
    )
    continue_session: Flag = field(
        default=False,
        title="Continue its session",
        description="In a loop, the next round continues the agent's own session if it can.",
    )
    skip_permissions: Flag = field(
        default=False,
        title="Skip permission prompts (dangerous)",
        description="Add the manifest's dangerousArgs: the agent acts without asking.",
    )


class AgentNode(NodeBase):
    """Asks an agent (a CLI, an HTTP model or a script of turns) to do something."""

    model_title = "Agent"
    group = "Agents"
    stamp = "AGT"
    summary = ("providerId", "prompt")
    outputs: ClassVar[Mapping[str, str]] = {
        "stdout": "All that the agent said.",
        "result": "Its last message.",
        "transcript": "What it said and the tools it used.",
        "stderr": "Its diagnostics.",
        "exitCode": "Its exit code; null when it was stopped or never began.",
        "durationMs": "How long it took.",
        "timedOut": "Whether it ran into its time limit.",
        "tokens": "Tokens used: input, output, cached.",
        "costUsd": "Reported cost in US dollars; absent when unknown.",
        "sessionId": "The agent's own name for the conversation.",
        "sessionTokens": "Tokens of the whole conversation: input, output, cached, cacheWrite.",
        "sessionCostUsd": "Reported cost of the whole conversation; absent when unknown.",
        "worktreePath": "The worktree it worked in, if any.",
        "denied": "What it was not allowed to do, and what allows it; absent when nothing was.",
        "errorMessage": "Why the step failed; empty when it did not.",
    }
    steady_outputs: ClassVar[JsonObject] = {
        "stdout": "",
        "stderr": "",
        "exitCode": None,
        "errorMessage": "",
    }
    nested_outputs = frozenset({"tokens", "sessionTokens"})
    trusted_outputs = frozenset(
        {
            *("costUsd", "durationMs", "exitCode", "sessionCostUsd", "sessionTokens"),
            *("timedOut", "tokens", "worktreePath"),
        }
    )
    has_effects = True
    main_field = "providerId"
    new_config: ClassVar[JsonObject] = {
        "providerId": "claude",
        "prompt": "",
        "timeoutMs": 1_800_000,
        "useWorktree": True,
    }

    type: Literal["agent"] = field("agent", "Type", "agent")
    config: AgentConfig = field(
        AgentConfig(), "Configuration", "The provider, the prompt, and where the agent works."
    )

    @classmethod
    def costs_money(cls, config: Mapping[str, JsonValue]) -> bool:
        return True

    @classmethod
    def untrusted_rule(cls, config: Mapping[str, JsonValue]) -> UntrustedRule:
        return "agents"

    @classmethod
    def carried_outputs(cls, config: Mapping[str, JsonValue]) -> tuple[str, ...]:
        return SESSION_OUTPUTS if config.get("continueSession") is True else ()

    @classmethod
    def works_with(cls, config: Mapping[str, JsonValue]) -> str:
        return f"the provider {as_text(config.get('providerId'))}"

    def check(self, check: NodeCheck) -> None:
        if not self.config.prompt.strip():
            check.mistake("config.prompt", "is empty", "say what the agent should do")
        check.provider("config.providerId", self.config.provider_id)
        check.not_negative("config.timeoutMs", self.config.timeout_ms)
        check.not_negative("config.idleTimeoutMs", self.config.idle_timeout_ms)
        check.not_negative("config.rateLimitMaxWaitMs", self.config.rate_limit_max_wait_ms)


class ScriptConfig(FileModel):
    """Inline code with a top-level function `run`."""

    language: Literal["ts", "py"] = field("ts", "Language", "TypeScript or Python.")
    inputs: dict[str, JsonValue] = field(
        {}, "Inputs", "Arguments of run, by position in this order.", template=True
    )
    outputs: tuple[str, ...] = field(
        (), "Outputs", "Keys of the returned object that become outputs."
    )
    code: str = field(
        "",
        "Code",
        "The script. References in it are not filled in; use inputs.",
        file=True,
        widget="code",
    )
    cwd: Selector = field(
        None,
        "Directory",
        "Where the script runs; the run's directory if empty.",
        template=True,
        widget="directory",
    )
    timeout_ms: Milliseconds = field(
        60_000,
        "Time limit (ms)",
        "The script is stopped after this long; 0 means the operator's longest time.",
    )


class ScriptNode(NodeBase):
    """Runs inline Python or TypeScript."""

    model_title = "Script"
    group = "Scripts"
    stamp = "SCR"
    summary = ("language", "code")
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
    trusted_outputs = frozenset({"durationMs", "exitCode", "language", "timedOut"})
    has_effects = True
    main_field = "language"

    type: Literal["script"] = field("script", "Type", "script")
    config: ScriptConfig = field(ScriptConfig(), "Configuration", "The code and its arguments.")

    @classmethod
    def untrusted_rule(cls, config: Mapping[str, JsonValue]) -> UntrustedRule:
        return "commands"

    @classmethod
    def works_with(cls, config: Mapping[str, JsonValue]) -> str:
        return f"its {as_text(config.get('language')) or 'ts'} script"

    def output_names(self) -> tuple[str, ...]:
        return (*self.outputs, *self.config.outputs)

    def check(self, check: NodeCheck) -> None:
        if not self.config.code.strip():
            check.mistake("config.code", "is empty", "define a top-level function run")
        check.not_negative("config.timeoutMs", self.config.timeout_ms)
        taken = set(self.outputs)
        for index, name in enumerate(self.config.outputs):
            if name in taken:
                report = check.error if name in self.trusted_outputs else check.mistake
                report(
                    f"config.outputs[{index}]",
                    f"{short_repr(name)} is already an output of this node",
                    "choose another name",
                )
            taken.add(name)


class Sentinel(FileModel):
    """A text or pattern to look for."""

    pattern: Pattern = field("", "Pattern", "What to look for.", template=True)
    is_regex: Flag = field(
        default=False, title="Regular expression", description="Take the pattern as one (RE2)."
    )


class Command(FileModel):
    """A shell command."""

    protective_fields = frozenset({"useWorktree"})

    cmd: ShellLine = field(
        "",
        "Command",
        "A shell line. A reference in it becomes an environment variable, never shell text.",
        template=True,
    )
    env: Variables = field({}, "Environment", "Variables for the command.", template=True)
    cwd: Selector = field(
        None,
        "Directory",
        "Where it runs; the run's directory if empty.",
        template=True,
        widget="directory",
    )
    timeout_ms: Milliseconds = field(
        30_000,
        "Time limit (ms)",
        "The command is stopped after this long; 0 means the operator's longest time.",
    )
    use_worktree: Flag = USE_WORKTREE
    worktree: Selector = WORKTREE
    worktree_ref: Selector = WORKTREE_REF
    include_uncommitted: Flag = INCLUDE_UNCOMMITTED
    worktree_include: tuple[str, ...] = WORKTREE_INCLUDE


class CheckCommand(Command):
    """A shell command whose exit code decides a condition."""

    loop_defaults: ClassVar[JsonObject] = {"timeoutMs": 600_000, "mustRun": True}

    must_run: Flag = field(
        default=False,
        title="Must run",
        description='A command that cannot run (exit code 126 or 127) is an error, not "not met".',
    )


class Rubric(FileModel):
    """A question that a model answers with met or not met."""

    rubric: str = field("", "Rubric", "What the text must fulfil.", template=True, widget="text")
    model: Selector = field(
        None, "Model", "The provider's default if empty.", template=True, widget="profile"
    )
    provider_id: str | None = field(
        None, "Provider", "Who judges; claude if empty.", widget="provider"
    )


class DevCheck(FileModel):
    """What must hold in the development loop (`infloop dev`) of the run's directory."""

    processes: tuple[str, ...] = field(
        (), "Processes", "Those that must be up; all that were started if empty."
    )
    state_key: Selector = field(
        None, "State key", "A key of its session state that must hold a text."
    )
    pattern: Pattern = field("", "Pattern", "What that text must match (RE2).")
    page: Selector = field(
        None,
        "Page",
        "A URL, or a path on the one under the state key: it must load in Chromium without an "
        "error on its console.",
    )
    timeout_ms: Milliseconds = field(30_000, "Time limit (ms)", "How long to wait until it holds.")
    settle_ms: Milliseconds = field(
        1_000, "Settle time (ms)", "How long it must hold without a restart."
    )


class ConditionConfig(FileModel):
    """What to check, and how. Parts of the kinds that are not chosen are kept and ignored."""

    kind: Literal["sentinel", "command", "judge", "dev"] = field(
        "sentinel",
        "Kind",
        "Look for a text, run a command, ask a model, or ask the development loop.",
    )
    against: str | None = field(
        None,
        "Against",
        "The text to check; the output of the step before if missing.",
        template=True,
        widget="text",
    )
    sentinel: Sentinel | None = field(None, "Sentinel", "For kind sentinel.")
    command: CheckCommand | None = field(None, "Command", "For kind command.")
    judge: Rubric | None = field(None, "Judge", "For kind judge.")
    dev: DevCheck | None = field(None, "Development loop", "For kind dev.")
    cwd: Selector = field(
        None,
        "Directory",
        "Where a command runs, unless it names its own.",
        template=True,
        widget="directory",
    )


class ConditionNode(NodeBase):
    """Met or not met. Directly in a loop, met ends the loop and not met begins the next round."""

    model_title = "Condition"
    stamp = "CND"
    summary = ("kind", "sentinel.pattern", "command.cmd", "judge.rubric", "dev.page")
    handles = ("met", "not_met", "error")
    outputs: ClassVar[Mapping[str, str]] = {
        "met": "Whether the condition holds.",
        "detail": "Why.",
        "stdout": "What a command printed.",
        "stderr": "A command's diagnostics.",
        "tail": "The end of what a command, or a process that is not up, printed; for a prompt.",
        "exitCode": "A command's exit code.",
        **ERROR_MESSAGE,
    }
    trusted_outputs = frozenset({"exitCode", "met"})
    has_effects = True  # except for kind sentinel, which `infloop.engine.decide` decides
    gives_verdict = True
    makes_result = False
    step_key = "check"
    variants = ("sentinel", "command", "judge", "dev")
    previous_output_field = "against"

    type: Literal["condition"] = field("condition", "Type", "condition")
    config: ConditionConfig = field(ConditionConfig(), "Configuration", "What to check, and how.")

    @classmethod
    def costs_money(cls, config: Mapping[str, JsonValue]) -> bool:
        return cls.variant(config) == "judge"

    @classmethod
    def untrusted_rule(cls, config: Mapping[str, JsonValue]) -> UntrustedRule | None:
        match cls.variant(config):
            case "judge":
                return "agents"
            case "command":
                return "commands"
            case _:
                return None

    @classmethod
    def works_with(cls, config: Mapping[str, JsonValue]) -> str:
        if cls.variant(config) == "dev":
            return "the development loop"
        if cls.variant(config) != "command":
            return "a judge"
        command = config.get("command")
        line = as_text(command.get("cmd")) if isinstance(command, dict) else ""
        return f"the command {line[:LONGEST_LINE]!r}"

    def check(self, check: NodeCheck) -> None:
        config = self.config
        match config.kind:
            case "sentinel":
                if config.sentinel is None or not config.sentinel.pattern:
                    check.mistake("config.sentinel.pattern", "is empty", "say what to look for")
                elif config.sentinel.is_regex:
                    check.pattern("config.sentinel.pattern", config.sentinel.pattern)
            case "command":
                if config.command is None or not config.command.cmd.strip():
                    check.mistake("config.command.cmd", "is empty", "write a shell command")
                else:
                    check.shell_line("config.command.cmd", config.command.cmd)
                    check.not_negative("config.command.timeoutMs", config.command.timeout_ms)
                    for name in config.command.env:
                        check.variable("config.command.env", name)
            case "judge":
                if config.judge is None or not config.judge.rubric.strip():
                    check.mistake("config.judge.rubric", "is empty", "say what must hold")
                else:
                    provider = config.judge.provider_id or DEFAULT_JUDGE
                    check.provider("config.judge.providerId", provider)
            case "dev":
                dev = config.dev or DevCheck()
                check.not_negative("config.dev.timeoutMs", dev.timeout_ms)
                check.not_negative("config.dev.settleMs", dev.settle_ms)
                if dev.pattern:
                    check.pattern("config.dev.pattern", dev.pattern)
                if dev.pattern and not dev.state_key:
                    check.error("config.dev.stateKey", "is empty", "say which key must match")


class CommandConfig(Command):
    """The shell line, and where it runs."""

    timeout_ms: Milliseconds = field(
        600_000,
        "Time limit (ms)",
        "The command is stopped after this long; 0 means the operator's longest time.",
    )


class CommandNode(NodeBase):
    """Runs a command that must succeed."""

    model_title = "Command"
    group = "Scripts"
    stamp = "CMD"
    summary = ("cmd",)
    outputs: ClassVar[Mapping[str, str]] = {
        "stdout": "What the command printed.",
        "stderr": "Its diagnostics.",
        "tail": "The end of what it printed, short enough for a prompt.",
        "exitCode": "Its exit code; absent when it was stopped.",
        "durationMs": "How long it took.",
        "timedOut": "Whether it ran into its time limit.",
        "worktreePath": "The worktree it worked in, if any.",
        **ERROR_MESSAGE,
    }
    trusted_outputs = frozenset({"durationMs", "exitCode", "timedOut", "worktreePath"})
    has_effects = True
    makes_result = False
    main_field = "cmd"

    type: Literal["command"] = field("command", "Type", "command")
    config: CommandConfig = field(CommandConfig(), "Configuration", "What to run, and where.")

    @classmethod
    def works_with(cls, config: Mapping[str, JsonValue]) -> str:
        return f"the command {as_text(config.get('cmd'))[:LONGEST_LINE]!r}"

    def check(self, check: NodeCheck) -> None:
        if not self.config.cmd.strip():
            check.error("config.cmd", "is empty", "write a shell command")
        check.shell_line("config.cmd", self.config.cmd)
        check.not_negative("config.timeoutMs", self.config.timeout_ms)
        for name in self.config.env:
            check.variable("config.env", name)


class LoopConfig(FileModel):
    """How often the body runs."""

    loop_names: ClassVar[Mapping[str, str]] = {"maxIterations": "max"}

    max_iterations: Whole = field(
        100, "Rounds at most", "After this many rounds the loop is left by exhausted, or by next."
    )
    check_first: Flag = field(
        default=False,
        title="Check first",
        description="Ask the condition before the first round; if it is met, no round begins.",
    )
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
            "Stop when this many rounds in a row ended with the same files and the same answer of "
            "the condition; true means 3, false or 0 never."
        ),
    )


class LoopNode(NodeBase):
    """Repeats its children, from the first on, until a condition is met or rounds run out."""

    model_title = "Loop"
    unpublished_fields = frozenset()
    stamp = "LOP"
    summary = ("maxIterations",)
    handles = ("next", "exhausted", "error")
    outputs: ClassVar[Mapping[str, str]] = {
        "iterations": "How many rounds began.",
        "broke": "Whether a condition ended it, not the number of rounds.",
        "noProgress": "Whether it was stopped because nothing changed any more.",
        "exhausted": "Whether it used up its rounds and its condition was not met.",
        **ERROR_MESSAGE,
    }
    trusted_outputs = frozenset({"broke", "exhausted", "iterations", "noProgress"})
    opens = "round"
    holds_nodes = True
    main_field = "id"
    new_config: ClassVar[JsonObject] = {"maxIterations": 5, "noProgressLimit": True}

    type: Literal["loop"] = field("loop", "Type", "loop")
    config: LoopConfig = field(LoopConfig(), "Configuration", "How often the body runs.")

    def conditions(self) -> tuple[Node, ...]:
        """Return the children that can end the loop."""
        return tuple(child for child in self.children if child.gives_verdict)

    def entries(self) -> tuple[Node, ...]:
        first = self.conditions()[-1:] if self.config.check_first else ()
        return (*super().entries(), *first)

    def check(self, check: NodeCheck) -> None:
        check.not_negative("config.maxIterations", self.config.max_iterations)
        check.not_negative("config.noProgressLimit", self.config.no_progress_limit)
        if not self.children:
            check.warning("", "the loop is empty", "put nodes into its children")
        elif self.config.check_first and not self.conditions():
            check.error(
                "config.checkFirst",
                "the loop has no condition that could be asked first",
                "add a condition as its last node, or remove checkFirst",
            )


class BranchConfig(FileModel):
    """A comparison of two texts."""

    lhs: str = field("", "Left", "The text that is compared.", template=True)
    op: Literal["==", "!=", "contains", "matches"] = field(
        "==", "Operator", "How; matches takes the right side as a regular expression (RE2)."
    )
    rhs: str = field("", "Right", "The text it is compared with.", template=True)


class BranchNode(NodeBase):
    """Goes one way or the other."""

    model_title = "If"
    stamp = "BRN"
    summary = ("lhs", "op", "rhs")
    handles = ("true", "false", "error")
    outputs: ClassVar[Mapping[str, str]] = {
        "result": "Whether the comparison holds.",
        "lhs": "The left text.",
        "op": "The operator.",
        "rhs": "The right text.",
        "error": "Why it could not be compared.",
        **ERROR_MESSAGE,
    }
    trusted_outputs = frozenset({"op"})
    step_key = "if"

    type: Literal["branch"] = field("branch", "Type", "branch")
    config: BranchConfig = field(BranchConfig(), "Configuration", "A comparison of two texts.")

    @classmethod
    def flow_handles(cls, config: Mapping[str, JsonValue]) -> tuple[str, ...]:
        return ("true", "false")

    def check(self, check: NodeCheck) -> None:
        if self.config.op == "matches":
            check.pattern("config.rhs", self.config.rhs)


class ParallelConfig(FileModel):
    """When it is settled."""

    mode: Literal["wait-all", "race", "quorum"] = field(
        "wait-all", "Mode", "All must succeed, the first success wins, or quorumN must succeed."
    )
    quorum_n: Whole | None = field(None, "Quorum", "How many must succeed, for mode quorum.")
    on_error: Literal["fail-fast", "best-effort"] = field(
        "fail-fast", "On error", "Fail at the first failure, or when the goal is out of reach."
    )


class ParallelNode(NodeBase):
    """Runs its branches at the same time. A branch begins at each child no sibling leads to."""

    model_title = "Parallel"
    unpublished_fields = frozenset()
    stamp = "PAR"
    summary = ("mode",)
    handles = ("all_done", "first_done", "quorum_met", "error")
    handle_choice: ClassVar[HandleChoice] = HandleChoice(
        "mode",
        {
            "wait-all": ("all_done", "error"),
            "race": ("first_done", "error"),
            "quorum": ("quorum_met", "error"),
        },
    )
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
    trusted_outputs = frozenset({"completed", "failed", "mode"})
    opens = "branch"
    holds_nodes = True
    main_field = "id"

    type: Literal["parallel"] = field("parallel", "Type", "parallel")
    config: ParallelConfig = field(ParallelConfig(), "Configuration", "When it is settled.")

    @classmethod
    def flow_handles(cls, config: Mapping[str, JsonValue]) -> tuple[str, ...]:
        chosen = cls.handle_choice.handles.get(str(config.get("mode", "wait-all")))
        return chosen[:1] if chosen else cls.handles[:1]

    def exits(self) -> tuple[str, ...]:
        return self.handle_choice.handles[self.config.mode]

    def exits_depend_on(self) -> str:
        return f"mode {self.config.mode!r}"

    def check(self, check: NodeCheck) -> None:
        branches, quorum = check.branches, self.config.quorum_n
        if not branches:
            circle = "its children lead to each other in a circle"
            reason = circle if self.children else "it is empty"
            check.warning("", f"the parallel has no branches: {reason}")
        if self.config.mode == "quorum" and not 1 <= (quorum or 0) <= branches:
            check.error(
                "config.quorumN",
                "is missing" if quorum is None else f"{quorum} of {branches} branches is no quorum",
                f"use a number from 1 to {branches}" if branches else "add branches",
            )


class SubworkflowConfig(FileModel):
    """Which workflow, its inputs, and the outputs that are taken from it."""

    workflow_id: str = field("", "Workflow", "The id of the workflow to call.", widget="workflow")
    inputs: dict[str, JsonValue] = field(
        {}, "Inputs", "Values for its inputs, by name.", template=True
    )
    outputs: dict[str, str] = field({}, "Outputs", "Name here: path there, such as agent-1.stdout.")


class SubworkflowNode(NodeBase):
    """Calls another workflow, which sees only what it is passed."""

    model_title = "Subworkflow"
    stamp = "SUB"
    summary = ("workflowId",)
    outputs: ClassVar[Mapping[str, str]] = {"status": "How it ended.", **ERROR_MESSAGE}
    trusted_outputs = frozenset({"status"})
    opens = "call"
    step_key = "call"
    main_field = "workflowId"

    type: Literal["subworkflow"] = field("subworkflow", "Type", "subworkflow")
    config: SubworkflowConfig = field(SubworkflowConfig(), "Configuration", "What to call.")

    @classmethod
    def works_with(cls, config: Mapping[str, JsonValue]) -> str:
        return f"the workflow {as_text(config.get('workflowId'))}"

    def output_names(self) -> tuple[str, ...]:
        return (*self.outputs, *self.config.outputs)

    def is_nested(self, output: str) -> bool:
        return output in self.config.outputs or super().is_nested(output)


class JudgeConfig(FileModel):
    """The candidates, the criteria, and the model that compares them."""

    criteria: str = field(
        "", "Criteria", "What makes a candidate good.", template=True, widget="text"
    )
    candidates: tuple[str, ...] = field((), "Candidates", "At least two texts.", template=True)
    judge_prompt: str | None = field(
        None, "Judge's instructions", "Instead of the usual ones.", template=True, widget="text"
    )
    model: Selector = field(
        None, "Model", "The provider's default if empty.", template=True, widget="profile"
    )
    provider_id: str | None = field(
        None, "Provider", "Who judges; claude if empty.", widget="provider"
    )


class JudgeNode(NodeBase):
    """Asks a model which of several candidates is best."""

    model_title = "Judge"
    group = "Agents"
    stamp = "JDG"
    summary = ("criteria",)
    outputs: ClassVar[Mapping[str, str]] = {
        "winner_index": "The number of the best candidate, from 0.",
        "winner": "Its text.",
        "scores": "One number from 1 to 10 per candidate.",
        "reasoning": "Why.",
        "raw": "The answer, when it could not be read.",
        **ERROR_MESSAGE,
    }
    nested_outputs = frozenset({"scores"})
    trusted_outputs = frozenset({"scores", "winner_index"})
    has_effects = True
    main_field = "criteria"

    type: Literal["judge"] = field("judge", "Type", "judge")
    config: JudgeConfig = field(
        JudgeConfig(), "Configuration", "The candidates, the criteria, and the model."
    )

    @classmethod
    def costs_money(cls, config: Mapping[str, JsonValue]) -> bool:
        return True

    @classmethod
    def untrusted_rule(cls, config: Mapping[str, JsonValue]) -> UntrustedRule:
        return "agents"

    @classmethod
    def works_with(cls, config: Mapping[str, JsonValue]) -> str:
        return "a judge"

    def check(self, check: NodeCheck) -> None:
        candidates = len(self.config.candidates)
        if candidates < 2:
            check.error(
                "config.candidates",
                f"{candidates} given; a judge compares at least two",
                "add another candidate",
            )
        if not self.config.criteria.strip():
            check.warning("config.criteria", "is empty", "say what makes one better")
        check.provider("config.providerId", self.config.provider_id or DEFAULT_JUDGE)


class ApprovalConfig(FileModel):
    """What a person is asked."""

    question: str = field(
        "", "Question", "What a person allows or denies, in one line.", template=True
    )
    details: str = field(
        "", "Details", "What the person should know, such as a diff.", template=True, widget="text"
    )
    timeout_ms: Milliseconds = field(
        0, "Timeout (ms)", "Without an answer until then it is denied; 0 means the server's time."
    )


class ApprovalNode(NodeBase):
    """Waits until a person allows or denies something."""

    model_title = "Approval"
    stamp = "APR"
    summary = ("question",)
    outputs: ClassVar[Mapping[str, str]] = {
        "answer": "`allowed`, or `denied`, also when nobody answered in time.",
        "why": "Who answered, and the note.",
        **ERROR_MESSAGE,
    }
    trusted_outputs = frozenset({"answer"})
    has_effects = True
    makes_result = False
    main_field = "question"

    type: Literal["approval"] = field("approval", "Type", "approval")
    config: ApprovalConfig = field(ApprovalConfig(), "Configuration", "What is asked.")

    @classmethod
    def untrusted_rule(cls, config: Mapping[str, JsonValue]) -> None:
        """Any text may be shown to a person."""

    def check(self, check: NodeCheck) -> None:
        if not self.config.question.strip():
            check.error("config.question", "is empty", "say what a person allows")
        check.not_negative("config.timeoutMs", self.config.timeout_ms)


class SidenoteConfig(FileModel):
    """The note."""

    text: str = field("", "Text", "For people; it has no effect.", widget="text")


class SidenoteNode(NodeBase):
    """A note on the canvas."""

    model_title = "Sidenote"
    group = "Notes"
    stamp = "NTE"
    summary = ("text",)
    handles = ()
    runs = False
    step_key = "note"
    main_field = "text"

    type: Literal["sidenote"] = field("sidenote", "Type", "sidenote")
    config: SidenoteConfig = field(SidenoteConfig(), "Configuration", "The note.")


Node: TypeAlias = Annotated[
    StartNode
    | EndNode
    | AgentNode
    | ScriptNode
    | CommandNode
    | ConditionNode
    | LoopNode
    | BranchNode
    | ParallelNode
    | SubworkflowNode
    | JudgeNode
    | ApprovalNode
    | SidenoteNode,
    ChosenBy("type"),
]
"""All node types."""

NodeModel: TypeAlias = type[NodeBase]

NODE_MODELS: Mapping[str, NodeModel] = {
    model.model_fields["type"].default: model for model in get_args(get_args(Node)[0])
}
"""The class of each node type, in the order of `Node`."""


def node_model(node_type: str) -> NodeModel:
    """Return the class of a node type; `NodeBase` for a type that is not known."""
    return NODE_MODELS.get(node_type, NodeBase)
