"""The events of a run, as the journal stores them.

- The state of a run is computed from its events. So an event holds everything that replay needs,
  and nothing that can be derived.
- `Recorded` adds what every event has: run, sequence number, time, correlation id.
- Output of steps (`Output`) shares the sequence but not the state: replay ignores it, and it is
  stored in larger pieces.
- Sequence numbers grow and are never reused. A resumed run skips ahead, past every number that an
  interrupted process may have sent to a listener.

A new event type is a class here and a line in `Event`. If it changes nothing in the run's state,
derive it from `Remark`. mypy names each place that must handle it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from infloop.model.values import JsonObject

Status: TypeAlias = Literal["succeeded", "failed", "cancelled", "paused"]


class RunBudget(msgspec.Struct, frozen=True, rename="camel"):
    """The limits of a run (0 means no limit), and what happens when its money is spent."""

    max_node_executions: int = 10_000
    max_duration_ms: int = 86_400_000
    max_cost_usd: float = 0.0
    on_budget: Literal["fail", "pause"] = "fail"


TriggerKindName: TypeAlias = Literal["webhook", "schedule", "file"]
"""The kinds of triggers; see `infloop.triggers.kinds`."""

_INSIDE = frozenset({"cli", "api", "mcp", "schedule", "file", "rewind", "import"})


class Cause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What started a run: a person, a trigger, another run.

    `untrusted` names the inputs whose values come from outside and are not trusted.
    """

    kind: Literal["cli", "api", "mcp", TriggerKindName, "rewind", "import"] = "cli"
    detail: str = ""
    parent_run: str = ""
    parent_step: str = ""
    untrusted: tuple[str, ...] = ()

    @property
    def from_outside(self) -> bool:
        """Whether neither this machine nor an authenticated client caused the run.

        A kind that is not listed counts as outside, which demands confined children.
        """
        return self.kind not in _INSIDE


class DirectoryId(NamedTuple):
    """Identifies a directory whatever its path; the device number is valid for these `mounts`."""

    inode: int
    device: int
    mounts: str


class RepositoryRef(msgspec.Struct, frozen=True, rename="camel"):
    """A repository and the ref in it with which a run starts."""

    repository: str
    ref: str


WORKSPACE = "workspace:"
"""The directory of a run's own checkout in events: each machine has it at another path."""


class Remark(msgspec.Struct, frozen=True):
    """An event that readers of a run may show and that changes nothing in the run's state."""


class RunStarted(msgspec.Struct, frozen=True, tag="run_started", rename="camel"):
    """The run exists; `definition` is the hash of its workflows, and its inputs are resolved.

    isolation   the level that confines its children
    egress      where they may connect
    directory   the identity of the directory at `workdir`; None in older records
    workspace   the repository it works in; then `workdir` is empty, and whoever drives the run
                makes a checkout (`WorkspaceFetched`)
    """

    workflow_id: str
    workflow_name: str
    definition: str
    inputs: JsonObject
    workdir: str
    limits: RunBudget = RunBudget()
    cause: Cause = Cause()
    isolation: str = "host"
    egress: str = "open"
    directory: DirectoryId | None = None
    workspace: RepositoryRef | None = None


class WorkspaceFetched(Remark, frozen=True, tag="workspace_fetched", rename="camel"):
    """The run has a checkout of its repository at `commit`; `checkout` is its name there."""

    repository: str
    ref: str
    commit: str
    checkout: str


class WorkspaceStored(
    Remark, frozen=True, tag="workspace_stored", rename="camel", omit_defaults=True
):
    """The files of the run's checkout are in the store, where every machine finds them.

    `snapshot` is their last state; `ignored` are the paths in it that git ignores, directories with
    a slash.
    """

    snapshot: str
    ignored: tuple[str, ...] = ()


class RunResumed(msgspec.Struct, frozen=True, tag="run_resumed", rename="camel"):
    """A process took the run over; steps that were running are started again.

    `isolation`, `egress` and `directory` apply from now on; they are empty in older records.
    `definition` is the hash of its workflows if they are others than before.
    """

    epoch: int
    limits: RunBudget = RunBudget()
    isolation: str = ""
    egress: str = ""
    directory: DirectoryId | None = None
    definition: str = ""


class StopRequested(msgspec.Struct, frozen=True, tag="stop_requested", rename="camel"):
    """Someone asked for the run to be cancelled."""

    reason: str = ""


class BudgetExceeded(
    msgspec.Struct, frozen=True, tag="budget_exceeded", rename="camel", omit_defaults=True
):
    """The budget does not allow a step: the whole run fails, or pauses before that step."""

    reason: str
    path: str = ""


class GuardFailed(msgspec.Struct, frozen=True, tag="guard_failed", rename="camel"):
    """The confinement of a step's children could not be set up, or broke: the whole run fails."""

    reason: str
    path: str


class TemplateWarning(Remark, frozen=True, tag="template_warning", rename="camel"):
    """A reference did not resolve and was left empty."""

    path: str
    node: str
    field: str
    missing_key: str


class StepStarted(
    msgspec.Struct, frozen=True, tag="step_started", rename="camel", omit_defaults=True
):
    """An effect is about to begin, or a container was entered."""

    path: str
    node: str
    node_type: str
    config: JsonObject
    iteration: int = 0
    attempt: int = 1


class StepFinished(
    msgspec.Struct, frozen=True, tag="step_finished", rename="camel", omit_defaults=True
):
    """A started step ended; `error` says why if it failed.

    `tree` identifies the files that it left behind: it is equal as long as no file changes.
    """

    path: str
    node: str
    node_type: str
    handle: str
    outputs: JsonObject
    duration_ms: int = 0
    error: str = ""
    tree: str = ""


class StepWaiting(
    msgspec.Struct, frozen=True, tag="step_waiting", rename="camel", omit_defaults=True
):
    """A step cannot do its work yet and is tried again at `until`.

    If that is later than its node allows, it ends with `reason` and `outputs`.
    """

    path: str
    node: str
    node_type: str
    until: int
    reason: str
    outputs: JsonObject
    duration_ms: int = 0


class WaitOver(msgspec.Struct, frozen=True, tag="wait_over", rename="camel"):
    """The wait of a step is over."""

    path: str


class StepPassed(
    msgspec.Struct, frozen=True, tag="step_passed", rename="camel", omit_defaults=True
):
    """A step without effects began and ended at once."""

    path: str
    node: str
    node_type: str
    config: JsonObject
    handle: str
    outputs: JsonObject
    iteration: int = 0
    error: str = ""


NoticeTopic: TypeAlias = Literal["", "permissions"]


class Notice(Remark, frozen=True, tag="notice", rename="camel", omit_defaults=True):
    """A message for the readers of a run; `permissions`: an agent was denied something."""

    message: str
    path: str = ""
    node: str = ""
    level: Literal["info", "warning", "error"] = "info"
    topic: NoticeTopic = ""


class TreeSaved(Remark, frozen=True, tag="tree_saved", rename="camel", omit_defaults=True):
    """A snapshot of a step's working directory was taken before or after the step.

    `tree` identifies its files. `files`, `insertions` and `deletions` count the files and lines
    that the step changed. `head` is the commit that a worktree had checked out.
    """

    path: str
    node: str
    attempt: int
    when: Literal["before", "after"]
    directory: str
    snapshot: str
    tree: str
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    head: str = ""


class TreeRestored(Remark, frozen=True, tag="tree_restored", rename="camel", omit_defaults=True):
    """A directory is restored to its state before the step at `path`, where this run begins.

    `replaced` is the snapshot of the state that was replaced; empty if there was nothing.
    """

    path: str
    directory: str
    snapshot: str
    replaced: str = ""
    head: str = ""


class RunFinished(
    msgspec.Struct, frozen=True, tag="run_finished", rename="camel", omit_defaults=True
):
    """The run has ended; no event follows.

    `interrupted` means that the state is unchanged and the run can be resumed: its process died and
    another one recorded that, or it is `paused` until somebody raises its budget.
    """

    status: Status
    error: str = ""
    failed_step: str = ""
    interrupted: bool = False


Event: TypeAlias = (
    RunStarted
    | RunResumed
    | WorkspaceFetched
    | WorkspaceStored
    | StopRequested
    | BudgetExceeded
    | GuardFailed
    | TemplateWarning
    | StepStarted
    | StepFinished
    | StepWaiting
    | WaitOver
    | StepPassed
    | Notice
    | TreeSaved
    | TreeRestored
    | RunFinished
)


ToolKind: TypeAlias = Literal["tool", "subagent"]


class ToolCall(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call that an agent starts or ends; both have the same id within their step."""

    id: str
    name: str
    phase: Literal["start", "end"]
    kind: ToolKind = "tool"
    failed: bool = False


class Output(msgspec.Struct, frozen=True, tag="output", rename="camel"):
    """A piece of the output of a running step; `tool` if it is about a tool call."""

    path: str
    node: str
    text: str
    stream: Literal["stdout", "stderr", "tool"] = "stdout"
    iteration: int = 0
    tool: ToolCall | None = None


class Recorded(msgspec.Struct, frozen=True, rename="camel"):
    """An event with its run, sequence number and time."""

    run_id: str
    seq: int
    time: int
    correlation_id: str
    event: Event | Output


def step_path(event: Event | Output) -> str:
    """Return the path of the step that `event` is about, or an empty string."""
    return getattr(event, "path", "")


def is_within(path: str, step: str) -> bool:
    """Say whether a path is `step` or inside it; an empty `step` contains every path."""
    return not step or path == step or path.startswith((f"{step}/", f"{step}[", f"{step}{{"))


_encoder = msgspec.json.Encoder()


def encode_event(event: Event) -> bytes:
    """Return the event as JSON bytes for the journal."""
    return _encoder.encode(event)


def event_type(event: Event | Output) -> str:
    """Return the event's name in the journal."""
    return str(event.__struct_config__.tag)
