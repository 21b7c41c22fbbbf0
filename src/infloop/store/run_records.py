"""Exports a finished run as Infinite Loop's JSON record, and imports one.

A record names events as the public event stream does. An import leaves out messages that follow
from others (`condition_checked`, the run's own `error`), messages that do not belong to the run
(`trigger_…`) and unknown ones.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from infloop.errors import NotFound, UsageError
from infloop.model.events import (
    BudgetExceeded,
    Cause,
    Event,
    Notice,
    Output,
    Recorded,
    RunFinished,
    RunStarted,
    Status,
    StepFinished,
    StepStarted,
    StopRequested,
    TemplateWarning,
    ToolCall,
)
from infloop.model.messages import expand, to_json
from infloop.model.problems import Report
from infloop.model.reading import within_bounds
from infloop.model.values import JsonObject, JsonValue
from infloop.store.interfaces.run_log import NewRun, RunLog, RunRow, definition_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_EVENTS = 50_000
"""A record contains at most this many events: the last ones."""

MAX_VALUES = 10_000_000
"""A record contains at most this many values."""

_LATEST = 1 << 53
_UNKNOWN_DEFINITION = b""  # a record does not contain the workflow
_NAME_CHARACTERS = 200


async def export_record(run_log: RunLog, run_id: str) -> JsonObject:
    """Return the record of a run that has finished."""
    run = await run_log.run(run_id)
    if run.finished_at is None:
        raise UsageError(
            f"run {run_id!r} has not finished; wait for it, or stop it with "
            f"`infloop cancel {run_id}`"
        )
    scope = await run_log.scope(run_id) or {}
    events, truncated = await _exported_events(run_log, run_id, scope)
    record: JsonObject = {
        "runId": run.id,
        "workflowId": run.workflow_id,
        "workflowName": run.workflow_name,
        "status": run.status,
        "startedAt": run.started_at,
        "finishedAt": run.finished_at,
        "durationMs": run.finished_at - run.started_at,
        "scope": scope,
    }
    if run.error:
        record["errorMessage"] = events[-1].get("errorMessage", run.error)
    record["events"] = list[JsonValue](events)
    if truncated:
        record["truncated"] = True
    return record


async def _exported_events(
    run_log: RunLog, run_id: str, scope: JsonObject
) -> tuple[list[JsonObject], bool]:
    events: deque[JsonObject] = deque(maxlen=MAX_EVENTS)
    count = after = 0
    while page := await run_log.events(run_id, after):
        for recorded in page:
            for message in map(to_json, expand(recorded)):
                if message["type"] == "run_finished":
                    message["scope"] = scope
                events.append(message)
                count += 1
        after = page[-1].seq
    return list(events), count > MAX_EVENTS


_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]


class _Record(msgspec.Struct, rename="camel"):
    run_id: str
    workflow_id: str
    workflow_name: str
    status: Status
    started_at: _Time
    finished_at: _Time
    scope: JsonObject
    events: list[JsonObject]
    error_message: str = ""


class _Message(msgspec.Struct, rename="camel"):
    """An event of a record, with the fields of all types."""

    type: str
    node_id: str = ""
    node_type: str = ""
    resolved_config: JsonObject = msgspec.field(default_factory=dict)
    loop_iteration: Annotated[int, msgspec.Meta(ge=0, le=_LATEST)] = 0
    line: str = ""
    stream: Literal["stdout", "stderr", "tool"] = "stdout"
    tool: ToolCall | None = None
    branch: str = ""
    outputs: JsonObject = msgspec.field(default_factory=dict)
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=_LATEST)] = 0
    field: str = ""
    missing_key: str = ""
    message: str = ""
    stderr: str = ""
    level: Literal["info", "warning", "error"] = "info"
    reason: str = ""
    step_path: str = ""
    time: _Time | None = None
    correlation_id: str = ""


def check_record(record: object) -> str:
    """Return the id of the run in a record. Raises UsageError if the record is invalid."""
    data = _checked(record)
    for index, event in enumerate(data.events):
        _message(index, event)
    return data.run_id


async def import_record(run_log: RunLog, record: object) -> RunRow:
    """Store a run from its record; it is listed, shown and searched like any other.

    Its cause is `import`. Raises UsageError if the run exists already or the record is invalid.
    """
    data = _checked(record)
    await _refuse_existing(run_log, data.run_id)
    messages = [_message(index, event) for index, event in enumerate(data.events)]
    correlation_id = next((m.correlation_id for m in messages if m.correlation_id), "")
    run = NewRun(
        data.run_id,
        data.workflow_id,
        data.workflow_name,
        _UNKNOWN_DEFINITION,
        owner="",
        started_at=data.started_at,
        correlation_id=correlation_id,
        cause=Cause("import"),
    )
    first, *rest = (
        Recorded(data.run_id, seq, time, correlation_id, event)
        for seq, (time, event) in enumerate(_events(data, messages), 1)
    )
    await run_log.create_run(run, first, rest, scope=data.scope)
    return await run_log.run(data.run_id)


def _checked(record: object) -> _Record:
    report = Report()
    if not within_bounds(record, report, escapes=False, max_values=MAX_VALUES):
        raise UsageError(f"this run record cannot be stored: {report.problems[0]}")
    try:
        data = msgspec.convert(record, _Record)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"this is not a run record: {error}; export one with `infloop export RUN`, or "
            "take a file from Infinite Loop's runs directory"
        ) from error
    for name in (data.run_id, data.workflow_id):
        if not _is_plain(name):
            raise UsageError(
                f"the id {name!r:.100} in this run record is not a plain name; use letters, "
                "digits, '-', '_' and '.'"
            )
    return data


def _is_plain(name: str) -> bool:
    return (
        0 < len(name) <= _NAME_CHARACTERS
        and name.isascii()
        and not name.startswith(".")
        and all(character.isalnum() or character in "-_." for character in name)
    )


async def _refuse_existing(run_log: RunLog, run_id: str) -> None:
    try:
        await run_log.run(run_id)
    except NotFound:
        return
    raise UsageError(f"run {run_id!r} exists already; `infloop show {run_id}` shows it")


def _message(index: int, event: JsonObject) -> _Message:
    try:
        return msgspec.convert(event, _Message)
    except msgspec.ValidationError as error:
        raise UsageError(f"event {index} of this run record is invalid: {error}") from error


def _events(data: _Record, messages: list[_Message]) -> Iterator[tuple[int, Event | Output]]:
    """Return the run's events with their times.

    Without times of their own, events have the start time of the run.
    """
    yield data.started_at, _run_started(data)
    steps = _Steps(data.error_message)
    for message in messages:
        time = data.started_at if message.time is None else message.time
        for event in steps.events(message):
            yield time, event
    for event in steps.unreported_errors():
        yield data.finished_at, event
    yield data.finished_at, RunFinished(data.status, data.error_message)


def _run_started(data: _Record) -> RunStarted:
    inputs = data.scope.get("inputs")
    message: JsonObject = next((e for e in data.events if e.get("type") == "run_started"), {})
    return RunStarted(
        data.workflow_id,
        data.workflow_name,
        definition_hash(_UNKNOWN_DEFINITION),
        inputs if isinstance(inputs, dict) else {},
        workdir="",
        cause=Cause("import"),
        isolation=_name(message.get("isolation")),
        egress=_name(message.get("egress")),
    )


def _name(value: JsonValue) -> str:
    return value[:_NAME_CHARACTERS] if isinstance(value, str) else ""


class _Steps:
    """Turns messages into events; tracks open steps, because the end of one names only its node."""

    def __init__(self, run_error: str) -> None:
        self._run_error = run_error
        self._open: dict[str, StepStarted] = {}
        self._errors: dict[str, str] = {}

    def events(self, message: _Message) -> Iterator[Event | Output]:
        """Return the events of one message."""
        node, path = message.node_id, self._path(message)
        match message.type:
            case "node_started":
                self._open[node] = StepStarted(
                    path, node, message.node_type, message.resolved_config, message.loop_iteration
                )
                yield self._open[node]
            case "stdout_chunk":
                iteration = self._iteration(message)
                yield Output(path, node, message.line, message.stream, iteration, message.tool)
            case "node_finished":
                self._open.pop(node, None)
                yield StepFinished(
                    path=path,
                    node=node,
                    node_type=message.node_type,
                    handle=message.branch,
                    outputs=message.outputs,
                    duration_ms=round(message.duration_ms),
                    error=self._errors.pop(path, ""),
                )
            case "template_warning":
                yield TemplateWarning(path, node, message.field, message.missing_key)
            case "error":
                yield from self._error(message, path)
            case "notice":
                yield Notice(message.message, path, node, message.level)
            case "run_stop_requested":
                yield StopRequested(message.reason)
            case "run_budget_exceeded":
                yield BudgetExceeded(message.reason)

    def unreported_errors(self) -> Iterator[Event]:
        """Return the errors of steps that never ended, as notices."""
        for path, error in self._errors.items():
            yield Notice(error, path, level="error")

    def _error(self, message: _Message, path: str) -> Iterator[Event]:
        text = "\n".join(filter(None, (message.message, message.stderr)))
        if message.node_id in self._open:
            self._errors[path] = text
        elif text != self._run_error:
            yield Notice(text, path, message.node_id, "error")

    def _path(self, message: _Message) -> str:
        if message.step_path:
            return message.step_path
        step = self._open.get(message.node_id)
        if step is not None and message.type != "node_started":
            return step.path
        round_number = f"[{message.loop_iteration}]" if message.loop_iteration else ""
        return f"{message.node_id}{round_number}"

    def _iteration(self, message: _Message) -> int:
        step = self._open.get(message.node_id)
        return message.loop_iteration or (step.iteration if step is not None else 0)
