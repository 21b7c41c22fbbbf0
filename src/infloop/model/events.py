"""What a run records: the journal's vocabulary.

A run's state is the fold of its events, so each event holds all that replay needs and nothing
that can be derived. `Recorded` adds what every event has: run, sequence, time, correlation id.

Token output (`Output`) shares the run's sequence but not its state: it is stored coalesced and
replay ignores it. Sequence numbers grow and are never reused; a resumed run skips ahead, past
any number that an interrupted process may have shown to a listener.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from infloop.model.values import JsonObject

Status: TypeAlias = Literal["succeeded", "failed", "cancelled", "paused"]


class RunBudget(msgspec.Struct, frozen=True, rename="camel"):
    """What a run may use up (0 means no limit), and what happens when its money is spent."""

    max_node_executions: int = 10_000
    max_duration_ms: int = 86_400_000
    max_cost_usd: float = 0.0
    on_budget: Literal["fail", "pause"] = "fail"


TriggerKindName: TypeAlias = Literal["webhook", "schedule", "file"]
"""The kinds of triggers; see `infloop.triggers.kinds`."""

_INSIDE = frozenset({"cli", "api", "mcp", "schedule", "file", "rewind", "import"})


class Cause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What made a run begin: a person, a trigger, another run.

    `untrusted` names the inputs that hold something from outside, which nobody vouches for.
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
    """Which directory it is, whatever its name; a device's number holds for these `mounts`."""

    inode: int
    device: int
    mounts: str


class Remark(msgspec.Struct, frozen=True):
    """An event that readers of a run may show and that changes nothing in the run's state."""


class RunStarted(msgspec.Struct, frozen=True, tag="run_started", rename="camel"):
    """The run exists: its definition is fixed by hash, its inputs are resolved.

    `isolation` and `egress` are what confines its children, and where they may connect;
    `directory` is which directory was at `workdir`, nothing in records that do not say.
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


class RunResumed(msgspec.Struct, frozen=True, tag="run_resumed", rename="camel"):
    """A process took the run over; steps that were in flight are begun again.

    `isolation`, `egress` and `directory` are what counts from here on; empty in records that do
    not say.
    """

    epoch: int
    limits: RunBudget = RunBudget()
    isolation: str = ""
    egress: str = ""
    directory: DirectoryId | None = None


class StopRequested(msgspec.Struct, frozen=True, tag="stop_requested", rename="camel"):
    """Someone asked for the run to be cancelled."""

    reason: str = ""


class BudgetExceeded(
    msgspec.Struct, frozen=True, tag="budget_exceeded", rename="camel", omit_defaults=True
):
    """A step was refused the money it needed: the whole run fails, or pauses before that step."""

    reason: str
    path: str = ""


class GuardFailed(msgspec.Struct, frozen=True, tag="guard_failed", rename="camel"):
    """What confines the children of a step could not be put up, or broke: the whole run fails."""

    reason: str
    path: str


class TemplateWarning(Remark, frozen=True, tag="template_warning", rename="camel"):
    """A reference resolved to nothing and was left empty."""

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
    """A started step ended; `error` says why when it did not succeed.

    `tree` stands for the files it left behind: the same as long as none of them changes.
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
    """A step could not do its work yet and will be tried again at `until`.

    `reason` and `outputs` are what it ends with if that is later than its node allows.
    """

    path: str
    node: str
    node_type: str
    until: int
    reason: str
    outputs: JsonObject
    duration_ms: int = 0


class WaitOver(msgspec.Struct, frozen=True, tag="wait_over", rename="camel"):
    """The time that a step waited for has come."""

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


class Notice(Remark, frozen=True, tag="notice", rename="camel", omit_defaults=True):
    """Something a reader of the run should see; it changes nothing."""

    message: str
    path: str = ""
    node: str = ""
    level: Literal["info", "warning", "error"] = "info"


class TreeSaved(Remark, frozen=True, tag="tree_saved", rename="camel", omit_defaults=True):
    """The directory that a step works in was kept as it was before or after the step.

    `tree` stands for its files alone. `files` changed in the step, with so many `insertions` and
    `deletions` of lines. `head` is the commit that a worktree had checked out.
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
    """A directory is made what it was before the step at `path`, where this run begins again.

    `replaced` is the snapshot that brings back what was there; empty when there was nothing.
    """

    path: str
    directory: str
    snapshot: str
    replaced: str = ""
    head: str = ""


class RunFinished(
    msgspec.Struct, frozen=True, tag="run_finished", rename="camel", omit_defaults=True
):
    """The run settled; nothing follows.

    `interrupted` means that the run's own state is untouched and that it can be resumed: its
    process died and another one wrote this down, or it is `paused` until somebody grants money.
    """

    status: Status
    error: str = ""
    failed_step: str = ""
    interrupted: bool = False


Event: TypeAlias = (
    RunStarted
    | RunResumed
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


class Output(msgspec.Struct, frozen=True, tag="output", rename="camel"):
    """A piece of text that a running step produced."""

    path: str
    node: str
    text: str
    stream: Literal["stdout", "stderr", "tool"] = "stdout"
    iteration: int = 0


class Recorded(msgspec.Struct, frozen=True, rename="camel"):
    """An event in its place: what every reader of a run receives."""

    run_id: str
    seq: int
    time: int
    correlation_id: str
    event: Event | Output


def step_path(event: Event | Output) -> str:
    """Return the path of the step that `event` is about, or an empty text."""
    return getattr(event, "path", "")


_encoder = msgspec.json.Encoder()


def encode_event(event: Event) -> bytes:
    """Return the event's journal form."""
    return _encoder.encode(event)


def event_type(event: Event | Output) -> str:
    """Return the event's name in the journal."""
    return str(event.__struct_config__.tag)
