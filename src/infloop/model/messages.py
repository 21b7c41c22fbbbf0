"""Events as outside readers see them: the names and fields of the HTTP API's event stream.

One recorded event becomes one or more messages (a step without effects is a start and a finish).
Every message says which run, when, in which place of the sequence and at which step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infloop.model.events import (
    BudgetExceeded,
    Event,
    GuardFailed,
    Notice,
    Output,
    Recorded,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepPassed,
    StepStarted,
    StepWaiting,
    StopRequested,
    TemplateWarning,
    TreeRestored,
    TreeSaved,
    WaitOver,
)
from infloop.model.nodes import node_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.values import JsonObject


def expand(recorded: Recorded) -> list[JsonObject]:
    """Return the messages of one recorded event."""
    common: JsonObject = {
        "runId": recorded.run_id,
        "seq": recorded.seq,
        "time": recorded.time,
        "correlationId": recorded.correlation_id,
    }
    path = getattr(recorded.event, "path", "")
    if path:
        common["stepPath"] = path
    return [{**message, **common} for message in _messages(recorded.event)]


def _messages(event: Event | Output) -> Iterator[JsonObject]:
    match event:
        case Output():
            yield _rounded(
                {"type": "stdout_chunk", "nodeId": event.node, "line": event.text}, event.iteration
            ) | ({"stream": event.stream} if event.stream != "stdout" else {})
        case StepPassed():
            yield _started(event)
            yield from _finished(event, 0)
        case StepStarted():
            yield _started(event)
        case StepFinished():
            yield from _finished(event, event.duration_ms)
        case TemplateWarning():
            yield {
                "type": "template_warning",
                "nodeId": event.node,
                "field": event.field,
                "missingKey": event.missing_key,
            }
        case RunStarted():
            yield {
                "type": "run_started",
                "workflowId": event.workflow_id,
                "workflowName": event.workflow_name,
                "inputs": event.inputs,
                "isolation": event.isolation,
                "egress": event.egress,
            }
        case RunFinished():
            if event.error:
                yield {"type": "error", "message": event.error}
            yield {"type": "run_finished", "status": event.status, "errorMessage": event.error}
        case RunResumed():
            yield {
                "type": "run_resumed",
                "epoch": event.epoch,
                "isolation": event.isolation,
                "egress": event.egress,
            }
        case StopRequested():
            yield {"type": "run_stop_requested", "reason": event.reason}
        case BudgetExceeded():
            yield {"type": "run_budget_exceeded", "reason": event.reason}
        case StepWaiting():
            yield {
                "type": "node_waiting",
                "nodeId": event.node,
                "until": event.until,
                "reason": event.reason,
            }
        case WaitOver():
            return
        case GuardFailed():
            yield {"type": "run_guard_failed", "reason": event.reason}
        case Notice():
            yield {"type": "notice", "level": event.level, "message": event.message}
        case TreeSaved():
            yield _saved(event)
        case TreeRestored():
            yield {
                "type": "tree_restored",
                "directory": event.directory,
                "snapshot": event.snapshot,
                "replaced": event.replaced,
            }
        case _:
            assert_never(event)


def _saved(event: TreeSaved) -> JsonObject:
    saved: JsonObject = {
        "type": "tree_saved",
        "nodeId": event.node,
        "attempt": event.attempt,
        "when": event.when,
        "directory": event.directory,
        "snapshot": event.snapshot,
        "tree": event.tree,
    }
    if event.when == "before":
        return saved
    counted: JsonObject = {
        "files": event.files,
        "insertions": event.insertions,
        "deletions": event.deletions,
    }
    return {**saved, **counted}


def _started(event: StepStarted | StepPassed) -> JsonObject:
    return _rounded(
        {
            "type": "node_started",
            "nodeId": event.node,
            "nodeType": event.node_type,
            "resolvedConfig": event.config,
        },
        event.iteration,
    )


def _finished(event: StepFinished | StepPassed, duration_ms: int) -> Iterator[JsonObject]:
    if event.error:
        yield {"type": "error", "nodeId": event.node, "message": event.error}
    yield {
        "type": "node_finished",
        "nodeId": event.node,
        "nodeType": event.node_type,
        "branch": event.handle,
        "outputs": event.outputs,
        "durationMs": duration_ms,
    }
    if node_model(event.node_type).gives_verdict and "met" in event.outputs:
        yield {
            "type": "condition_checked",
            "nodeId": event.node,
            "met": event.outputs["met"],
            "detail": event.outputs.get("detail", ""),
        }


def _rounded(message: JsonObject, iteration: int) -> JsonObject:
    if iteration:
        message["loopIteration"] = iteration
    return message
