"""Events in the form of the HTTP API's event stream.

- One recorded event becomes one or more messages: a step without effects is a start and a finish.
- Every message has a type, a run, a sequence number and a time, and the path of its step if any.
- Fields with their default value are left out of the JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from infloop.model import events
from infloop.model.values import JsonObject, JsonValue

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Message(msgspec.Struct, kw_only=True, tag_field="type", rename="camel", omit_defaults=True):
    run_id: str
    seq: int
    time: int
    correlation_id: str
    step_path: str = ""


class RunStarted(_Message, kw_only=True, tag="run_started"):
    """A run began."""

    workflow_id: str
    workflow_name: str
    inputs: JsonObject
    isolation: str
    egress: str


class WorkspaceFetched(_Message, kw_only=True, tag="workspace_fetched"):
    """The run works in a checkout of a repository at a commit."""

    repository: str
    ref: str
    commit: str


class RunResumed(_Message, kw_only=True, tag="run_resumed"):
    """A process took the run over."""

    epoch: int
    isolation: str
    egress: str


class RunFinished(_Message, kw_only=True, tag="run_finished"):
    """A run ended; the stream adds the scope that it ended with."""

    status: events.Status
    error_message: str
    scope: JsonObject | UnsetType = UNSET


class RunStopRequested(_Message, kw_only=True, tag="run_stop_requested"):
    """Somebody asked for the run to be cancelled."""

    reason: str


class RunBudgetExceeded(_Message, kw_only=True, tag="run_budget_exceeded"):
    """The budget did not allow a step."""

    reason: str


class RunGuardFailed(_Message, kw_only=True, tag="run_guard_failed"):
    """The confinement of a step could not be set up, or broke."""

    reason: str


class NodeStarted(_Message, kw_only=True, tag="node_started"):
    """A step began, with its references resolved."""

    node_id: str
    node_type: str
    resolved_config: JsonObject
    loop_iteration: int = 0


class NodeFinished(_Message, kw_only=True, tag="node_finished"):
    """A step ended and left by `branch`."""

    node_id: str
    node_type: str
    branch: str
    outputs: JsonObject
    duration_ms: int


class NodeWaiting(_Message, kw_only=True, tag="node_waiting"):
    """A step is tried again at `until`."""

    node_id: str
    until: int
    reason: str


class StdoutChunk(_Message, kw_only=True, tag="stdout_chunk"):
    """Text that a step printed; `tool` if it is about a tool call of an agent."""

    node_id: str
    line: str
    loop_iteration: int = 0
    stream: str = "stdout"
    tool: events.ToolCall | UnsetType = UNSET


class ConditionChecked(_Message, kw_only=True, tag="condition_checked"):
    """A condition was met or not."""

    node_id: str
    met: JsonValue
    detail: JsonValue


class ErrorMessage(_Message, kw_only=True, tag="error"):
    """A step or the run failed."""

    message: str
    node_id: str = ""


class TemplateWarning(_Message, kw_only=True, tag="template_warning"):
    """A reference did not resolve and was left empty."""

    node_id: str
    field: str
    missing_key: str


class Notice(_Message, kw_only=True, tag="notice"):
    """A message for people; topic `permissions`: an agent was denied something."""

    level: str
    message: str
    topic: str = ""


class TreeSaved(_Message, kw_only=True, tag="tree_saved"):
    """A snapshot of a directory was taken before or after a step; changes are counted after it."""

    node_id: str
    attempt: int
    when: Literal["before", "after"]
    directory: str
    snapshot: str
    tree: str
    files: int | UnsetType = UNSET
    insertions: int | UnsetType = UNSET
    deletions: int | UnsetType = UNSET


class TreeRestored(_Message, kw_only=True, tag="tree_restored"):
    """A directory was restored; `replaced` is the snapshot of its state before that."""

    directory: str
    snapshot: str
    replaced: str


Message: TypeAlias = (
    RunStarted
    | RunResumed
    | WorkspaceFetched
    | RunFinished
    | RunStopRequested
    | RunBudgetExceeded
    | RunGuardFailed
    | NodeStarted
    | NodeFinished
    | NodeWaiting
    | StdoutChunk
    | ConditionChecked
    | ErrorMessage
    | TemplateWarning
    | Notice
    | TreeSaved
    | TreeRestored
)


def expand(recorded: events.Recorded) -> list[Message]:
    """Return the messages of one recorded event."""
    event = recorded.event
    if isinstance(event, events.Output):
        return [_chunk(recorded, event)]
    place = {
        "run_id": recorded.run_id,
        "seq": recorded.seq,
        "time": recorded.time,
        "correlation_id": recorded.correlation_id,
        "step_path": events.step_path(event),
    }
    return list(_messages(event, place))


def _chunk(recorded: events.Recorded, output: events.Output) -> StdoutChunk:
    """Return the message of a piece of output: there are far more of them than of all others."""
    return StdoutChunk(
        run_id=recorded.run_id,
        seq=recorded.seq,
        time=recorded.time,
        correlation_id=recorded.correlation_id,
        step_path=output.path,
        node_id=output.node,
        line=output.text,
        loop_iteration=output.iteration,
        stream=output.stream,
        tool=output.tool or UNSET,
    )


def to_json(message: Message) -> JsonObject:
    """Return a message as plain JSON values."""
    plain: JsonObject = msgspec.to_builtins(message)
    return plain


def _messages(event: events.Event, place: dict[str, Any]) -> Iterator[Message]:
    match event:
        case events.StepPassed():
            yield _started(event, place)
            yield from _finished(event, 0, place)
        case events.StepStarted():
            yield _started(event, place)
        case events.StepFinished():
            yield from _finished(event, event.duration_ms, place)
        case events.TemplateWarning():
            yield TemplateWarning(
                **place, node_id=event.node, field=event.field, missing_key=event.missing_key
            )
        case events.RunStarted():
            yield RunStarted(
                **place,
                workflow_id=event.workflow_id,
                workflow_name=event.workflow_name,
                inputs=event.inputs,
                isolation=event.isolation,
                egress=event.egress,
            )
        case events.RunFinished():
            if event.error:
                yield ErrorMessage(**place, message=event.error)
            yield RunFinished(**place, status=event.status, error_message=event.error)
        case events.WorkspaceFetched():
            yield WorkspaceFetched(
                **place, repository=event.repository, ref=event.ref, commit=event.commit
            )
        case events.WorkspaceStored():
            return
        case events.RunResumed():
            yield RunResumed(
                **place, epoch=event.epoch, isolation=event.isolation, egress=event.egress
            )
        case events.StopRequested():
            yield RunStopRequested(**place, reason=event.reason)
        case events.BudgetExceeded():
            yield RunBudgetExceeded(**place, reason=event.reason)
        case events.StepWaiting():
            yield NodeWaiting(**place, node_id=event.node, until=event.until, reason=event.reason)
        case events.WaitOver():
            return
        case events.GuardFailed():
            yield RunGuardFailed(**place, reason=event.reason)
        case events.Notice():
            yield Notice(**place, level=event.level, message=event.message, topic=event.topic)
        case events.TreeSaved():
            yield _saved(event, place)
        case events.TreeRestored():
            yield TreeRestored(
                **place,
                directory=event.directory,
                snapshot=event.snapshot,
                replaced=event.replaced,
            )
        case _:
            assert_never(event)


def _saved(event: events.TreeSaved, place: dict[str, Any]) -> TreeSaved:
    after = event.when == "after"
    return TreeSaved(
        **place,
        node_id=event.node,
        attempt=event.attempt,
        when=event.when,
        directory=event.directory,
        snapshot=event.snapshot,
        tree=event.tree,
        files=event.files if after else UNSET,
        insertions=event.insertions if after else UNSET,
        deletions=event.deletions if after else UNSET,
    )


def _started(event: events.StepStarted | events.StepPassed, place: dict[str, Any]) -> NodeStarted:
    return NodeStarted(
        **place,
        node_id=event.node,
        node_type=event.node_type,
        resolved_config=event.config,
        loop_iteration=event.iteration,
    )


def _gives_verdict(node_type: str) -> bool:
    # Imported here, because the models of all node types take 35 ms to import, and commands that
    # only list runs need the types of messages alone.
    from infloop.model.nodes import node_model

    return node_model(node_type).gives_verdict


def _finished(
    event: events.StepFinished | events.StepPassed, duration_ms: int, place: dict[str, Any]
) -> Iterator[Message]:
    if event.error:
        yield ErrorMessage(**place, node_id=event.node, message=event.error)
    yield NodeFinished(
        **place,
        node_id=event.node,
        node_type=event.node_type,
        branch=event.handle,
        outputs=event.outputs,
        duration_ms=duration_ms,
    )
    if "met" in event.outputs and _gives_verdict(event.node_type):
        yield ConditionChecked(
            **place,
            node_id=event.node,
            met=event.outputs["met"],
            detail=event.outputs.get("detail", ""),
        )
