"""Why a run is in its state, as lines to read: its start, its progress, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.advice import short
from infloop.cli.view.figures import clock_time, cost, duration, moment
from infloop.cli.view.outline import round_text
from infloop.cli.view.terminal import indented, one_line, plural, safe
from infloop.model.approval import answer_hint
from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.application.runs.explain import Ending, Explanation, Position
    from infloop.model.events import Cause
    from infloop.model.values import JsonObject

LAST_LINES = 8
INPUT_CHARS = 80
DENIAL_CHARS = 400
BUDGET = "budget:"


def cause_text(cause: Cause) -> str:
    """Return what started a run."""
    match cause.kind:
        case "cli" if cause.detail.startswith("infloop "):
            return f"by `{one_line(cause.detail)}`"  # this command has no workflow file
        case "cli":
            text = "by `infloop run`"
        case "rewind":
            text = (
                f"by `infloop rewind {short(cause.parent_run)} --to {one_line(cause.parent_step)}`"
            )
        case "import":
            text = "elsewhere (its record was imported)"
        case "api" | "mcp":
            text = f"over {cause.kind.upper()}"
        case kind:
            text = f"by a {kind}"
    return f"{text} ({one_line(cause.detail)})" if cause.detail else text


def inputs_text(inputs: JsonObject) -> str:
    """Return the inputs of a run, each shortened."""
    return ", ".join(
        f"{one_line(name)}={one_line(as_text(value), INPUT_CHARS)}"
        for name, value in inputs.items()
    )


def explanation_lines(known: Explanation) -> list[str]:
    """Return the causal chain, line by line; what an agent was denied is the first reason."""
    return [
        *(f"  {one_line(line, DENIAL_CHARS)}" for line in known.denials),
        *(f"  {line}" for line in _start(known)),
        *(f"  {line}" for line in _progress(known)),
        *(f"  {line}" for line in _present_or_end(known)),
    ]


# -- what started it -------------------------------------------------------------------------


def _start(known: Explanation) -> Iterator[str]:
    yield f"started {cause_text(known.run.cause)} at {moment(known.run.started_at)}"
    for ancestor in known.ancestors:
        when = moment(ancestor.started_at)
        yield f"  run {short(ancestor.run_id)} was started {cause_text(ancestor.cause)} at {when}"
    if known.new_workflow:
        yield "  from that step on with another version of its workflow"
    if known.workdir:
        yield f"  in {one_line(known.workdir)}"
    given = inputs_text(known.inputs)
    yield f"  with inputs {given}" if given else "  without inputs"


def _progress(known: Explanation) -> Iterator[str]:
    spent = cost(known.cost)
    yield f"did {plural(known.steps_done, 'step')}{f', cost {spent}' if spent else ''}"
    for when in known.resumed_at:
        yield f"  its process had died; it was resumed at {moment(when)}"
    for notice in known.notices:
        yield f"  {notice.level}: {one_line(notice.message, 200)}"


# -- what it does, or what stopped it --------------------------------------------------------


def _present_or_end(known: Explanation) -> Iterator[str]:
    match known.run.status:
        case "running":
            yield from _present(known)
        case "stalled":
            yield f"its process {_process(known)} exists and does not respond"
            yield f"  its last sign of life was at {moment(known.last_sign_at)}"
            yield from _interrupted_steps(known)
        case "interrupted":
            yield f"its process {_process(known)} ended without recording how the run ended"
            yield f"  its last sign of life was at {moment(known.last_sign_at)}"
            yield from _interrupted_steps(known)
        case _:
            yield from _end(known)


def _present(known: Explanation) -> Iterator[str]:
    if known.stop:
        yield f"asked to stop at {moment(known.stop.at)}: {one_line(known.stop.reason)}"
        yield "waits for its steps to end"
    if not known.positions:
        yield "is between two steps"
    for step in known.positions:
        yield f"now at {_position(step, known.at)}"
    for approval in known.approvals:
        yield f"waiting for an answer: {one_line(approval.title)}"
        yield f"  {one_line(answer_hint(approval))}"
    yield from _last_lines(known.last_output)


def _position(step: Position, now: int) -> str:
    loops = ", ".join(round_text(loop.round, loop.max_rounds) for loop in step.loops)
    parts = [
        f"{one_line(step.path)} ({step.node_type}{f', {loops}' if loops else ''})",
        _time(step, now),
        one_line(step.uses, 160),
    ]
    return ", ".join(part for part in parts if part)


def _time(step: Position, now: int) -> str:
    if step.waiting_until:
        return f"waiting until {clock_time(step.waiting_until, now)}"
    return f"for {duration(now - step.started_at)}"


def _process(known: Explanation) -> str:
    process = known.process
    if process.pid is None:
        return f"({one_line(process.id)})"
    return f"(pid {process.pid} on {one_line(process.host)})"


def _interrupted_steps(known: Explanation) -> Iterator[str]:
    for step in known.positions:
        uses = f", {one_line(step.uses, 160)}" if step.uses else ""
        yield f"it was at {one_line(step.path)} ({step.node_type}){uses}"
    yield from _last_lines(known.last_output)


def _end(known: Explanation) -> Iterator[str]:
    status, ending = known.run.status, known.ending
    if ending is None:
        yield f"{status} at {moment(known.run.finished_at or 0)}"
        return
    yield f"{status} at {moment(ending.at)}, after {duration(ending.duration_ms)}"
    if status == "succeeded":
        reached = one_line(known.reached)
        yield f"  it reached {reached}, and nothing follows" if reached else "  it is over"
        return
    if known.stop:
        yield f"  asked to stop at {moment(known.stop.at)}: {one_line(known.stop.reason)}"
    if status == "paused":
        yield f"  its budget is used up: {_budget(ending)}"
        yield f"  it continues with {one_line(ending.failed_step)} when it is resumed"
        return
    if ending.interrupted:
        yield "  its process ended without finishing it; that was recorded later"
        yield from _interrupted_steps(known)
        return
    if ending.error.startswith(BUDGET):
        yield f"  its budget ran out: {_budget(ending)}"
    elif not known.stop:
        yield from (f"  {line}" for line in safe(ending.error).split("\n"))
    yield from _last_step(known)


def _budget(ending: Ending) -> str:
    return one_line(ending.error.removeprefix(BUDGET).strip())


def _last_step(known: Explanation) -> Iterator[str]:
    step = known.last_step
    if step is None:
        return
    path = one_line(step.path)
    if not step.error:
        yield f"the last step was {path} ({step.node_type})"
        return
    yield f"step {path} ({step.node_type}) did not succeed: {one_line(step.error, 400)}"
    after = (
        f"and the run went on to {one_line(step.next_path)}"
        if step.next_path
        else "and nothing followed it"
    )
    yield f"  it left by {one_line(step.handle)!r} after {duration(step.duration_ms)}, {after}"
    yield from _last_lines(known.last_output)


def _last_lines(output: str) -> Iterator[str]:
    lines = [line for line in output.split("\n") if line.strip()][-LAST_LINES:]
    if lines:
        yield "  its last output:"
        yield from (indented(one_line(line, 300), "    | ") for line in lines)
