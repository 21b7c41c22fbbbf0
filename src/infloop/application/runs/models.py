"""Runs as every surface shows them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from infloop.application.models import Model
from infloop.application.runs.activity import OpenStep, StepWait
from infloop.application.runs.cost import RunCost, Tokens
from infloop.application.runs.rewound_steps import RewoundSteps
from infloop.model.events import Cause
from infloop.model.messages import Message
from infloop.model.values import JsonObject

RunStatus: TypeAlias = Literal[
    "running", "stalled", "interrupted", "paused", "succeeded", "failed", "cancelled"
]
QueueStatus: TypeAlias = Literal["queued", "removed", "dropped", "started"]
FINISHED: tuple[RunStatus, ...] = ("succeeded", "failed", "cancelled")
"""Nothing more happens in a run with one of these."""

ACTIVE: tuple[RunStatus, ...] = ("running", "stalled")
"""A process exists that drives such a run."""


class WorkflowFile(Model, kw_only=True):
    """The file of a run's workflow, if it is not what the run began with.

    `broken`: it has changed and could not be run now.
    """

    file: str
    state: Literal["changed", "gone", "broken"]


class SearchMatch(Model, kw_only=True):
    """The best matching place of a run: the step, the kind of text, and an excerpt."""

    step: str
    kind: str = field(name="in")
    text: str
    places: int


class RunSummary(Model, kw_only=True, tag_field="kind", tag="run"):
    """A run without its scope and events.

    `status` is derived from evidence: `running` only while the process that drives the run lives.
    `error` is shortened; `errorMessage` is the same text and left out when there is none. `costUsd`
    is null if nothing that costs money has run, or if no cost is known; unless `costIsComplete`,
    the true cost may be higher.

    Of a run that has not ended: `maxCostUsd` is what it may cost, null without a limit; `openSteps`
    are the steps in progress, `rounds` the round of each loop around them by its path, and
    `lastSignAt` is when it last did or printed something. `waiting` is the step that waits for a
    time.
    """

    run_id: str
    workflow_id: str
    workflow_name: str
    status: RunStatus
    started_at: int
    finished_at: int | None
    duration_ms: int | None
    steps: int
    event_count: int
    failed_step: str
    error: str
    error_message: str | UnsetType = UNSET
    cause: Cause
    correlation_id: str
    epoch: int
    last_seq: int
    cost_usd: float | None
    cost_is_complete: bool
    tokens: Tokens
    max_cost_usd: float | None = None
    open_steps: list[OpenStep] = field(default_factory=list)
    rounds: dict[str, int] = field(default_factory=dict)
    last_sign_at: int | None = None
    waiting: StepWait | None = None
    match: SearchMatch | UnsetType = UNSET

    @property
    def cost(self) -> RunCost:
        """What its calls cost together."""
        return RunCost(usd=self.cost_usd, complete=self.cost_is_complete, tokens=self.tokens)


class RunProgress(Model, kw_only=True):
    """Where a live run is: the nodes that are open, and the round of each loop."""

    open_nodes: list[str]
    rounds: dict[str, int]


class RunDetail(RunSummary, kw_only=True, tag="run"):
    """A run with its scope, and with where it is while it is live in this process.

    `untrusted` names the inputs and nodes that hold something from outside. `truncated` is true if
    `events` has only the newest ones.
    """

    untrusted: list[str]
    scope: JsonObject
    current_node_id: str | UnsetType | None = UNSET
    open_node_ids: list[str] | UnsetType = UNSET
    iteration_by_loop_id: dict[str, int] | UnsetType = UNSET
    events: list[Message] | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class OutputPreview(Model, kw_only=True):
    """The beginning of an output, and its full length in characters."""

    text: str
    size: int


class StepReport(Model, kw_only=True):
    """One visit of a node. `branch` is the handle by which it was left."""

    path: str = field(name="stepPath")
    node: str = field(name="nodeId")
    node_type: str
    started_at: int
    running: bool
    attempt: int
    handle: str = field(name="branch")
    error: str
    duration_ms: int
    cost_usd: float | None
    rounds: int | None
    rounds_not_listed: int
    outputs: dict[str, OutputPreview]


class RunReport(RunDetail, kw_only=True, tag="run"):
    """A run with its steps. Of a long loop the first and the last rounds are listed.

    `error` is complete here.
    """

    inputs: JsonObject
    isolation: str
    egress: str
    warnings: list[str]
    steps_done: int
    step_list: list[StepReport]


class RunWorkflow(Model, kw_only=True):
    """The workflow of a run as the run has it, and those that it may call, by id."""

    workflow: JsonObject
    called: dict[str, JsonObject]


class OutputPage(Model, kw_only=True):
    """Part of one output of a step; `offset` and `total` are in characters."""

    text: str
    offset: int
    total: int


class QueuedRun(Model, kw_only=True, tag_field="kind", tag="queued"):
    """A run that waits in the queue, or was removed from it.

    `reason` says why a run that waits cannot start: it is held and tried again, or no server or
    worker has the labels that it requires.
    """

    run_id: str
    queue_id: str
    workflow_id: str
    status: QueueStatus
    position: int
    queued_at: int
    reason: str
    cause: Cause
    correlation_id: str


class RefusedFiring(Model, kw_only=True):
    """A trigger that fired and whose run was refused.

    `trigger` is the fingerprint of its id, as in the audit log. Equal refusals are counted: `at` is
    the time of the last, `firstAt` of the first.
    """

    trigger: str
    trigger_name: str
    trigger_kind: str
    workflow_id: str
    reason: str
    message: str
    correlation_id: str
    at: int
    first_at: int
    count: int


class RunPage(Model, kw_only=True):
    """Runs, newest first; pass `next` as `before` to get the following page.

    The first page of an unfiltered list also has what did not become a run: `held` in the queue,
    with the reason, and `refused` firings of triggers, newest first.
    """

    runs: list[RunSummary]
    next: str | None = None
    held: list[QueuedRun] = field(default_factory=list)
    refused: list[RefusedFiring] = field(default_factory=list)


class EventPage(Model, kw_only=True):
    """Events of a run, in order; pass `next` as `after` to get the following page.

    Pass `previous` as `before` to get the page before it; it is null at the beginning of the run.
    With a step, a page may hold few events or none although there are more.
    """

    events: list[Message]
    next: int | None = None
    previous: int | None = None


class DirectoryDiff(Model, kw_only=True):
    """What a run, or a step of it, changed in one directory.

    `protected` maps changed files that other programs act on to the reason. `secrets` maps files to
    which a secret was added to the names of its detectors. `leftOut` maps changed files that are
    not shown, and that `apply` does not take, to the reason.
    """

    directory: str
    patch: str
    changed: bool
    protected: dict[str, str]
    secrets: dict[str, list[str]]
    left_out: dict[str, str]


class Diff(Model, kw_only=True):
    """What changed, by directory."""

    directories: list[DirectoryDiff]


class FileChange(Model, kw_only=True):
    """A file that changed. `mode` means its permissions, `type` that a file became a link.

    A path that ends with a slash is an empty directory.
    """

    path: str
    kind: Literal["added", "modified", "deleted", "mode", "type"]
    insertions: int
    deletions: int
    binary: bool


class DirectoryChanges(Model, kw_only=True):
    """Which files changed in one directory; see `DirectoryDiff`."""

    directory: str
    files: list[FileChange]
    changed: bool
    protected: dict[str, str]
    secrets: dict[str, list[str]]
    left_out: dict[str, str]


class ChangeList(Model, kw_only=True):
    """Which files changed, by directory."""

    directories: list[DirectoryChanges]


class DirectoryRestore(Model, kw_only=True):
    """What a rewind changes in one directory; `files` is null if it is created again."""

    directory: str
    files: list[FileChange] | None


class RewindPlan(Model, kw_only=True):
    """What a rewind to `step` keeps, runs again, and changes in the directories of a run."""

    run_id: str
    step: str
    kept: RewoundSteps
    again: RewoundSteps
    workflow_file: WorkflowFile | UnsetType = UNSET
    directories: list[DirectoryRestore]


class ReplacedDirectory(Model, kw_only=True):
    """A directory that a rewind changed, and the snapshot of what it replaced."""

    directory: str
    snapshot: str


class StartedRun(Model, kw_only=True):
    """A run that was started or continued. What is new has a sequence above `afterSeq`.

    `workflowFile` is there if a run goes on with what it began with, and its file has changed.
    """

    run_id: str
    correlation_id: str
    after_seq: int
    workflow_file: WorkflowFile | UnsetType = UNSET


class Cancellation(Model, kw_only=True):
    """What became of a request to stop a run.

    `stopping`: the process that drives it was asked. `removed`: it waited in the queue and will
    not begin. Otherwise nobody drove it, and this is how it is settled now.
    """

    run_id: str
    correlation_id: str
    status: Literal["stopping", "removed", "paused", "succeeded", "failed", "cancelled"]
    before: RunStatus | Literal["queued"]


class Recovery(Model, kw_only=True):
    """Runs whose process had died, and messages about what else was cleaned up.

    `failed` are recorded as failed; `resumable` wait to be resumed, as their workflow asks.
    """

    failed: list[str]
    resumable: list[str]
    messages: list[str]


class QueuedState(Model, kw_only=True):
    """The state of a run that was just put into the queue."""

    status: Literal["queued"] = "queued"
    run_id: str
    workflow_id: str
    iteration_by_loop_id: dict[str, int]
    scope: JsonObject
    events: list[Message]


class RunPromise(Model, kw_only=True):
    """A run that will begin when there is room; position 1 is next."""

    status: Literal["queued"] = "queued"
    run_id: str
    queue_id: str
    position: int
    workflow_id: str
    trigger_id: str
    correlation_id: str
    state: QueuedState


class RunAnswer(Model, kw_only=True):
    """One run."""

    run: RunDetail | QueuedRun


class Idle(Model, kw_only=True, tag_field="kind", tag="idle"):
    """There is no run yet."""

    status: Literal["idle"] = "idle"
    iteration_by_loop_id: dict[str, int]
    scope: JsonObject
    events: list[Message]


class LatestRun(Model, kw_only=True):
    """The run that began last, with its newest events; a live run comes first."""

    state: RunDetail | Idle
