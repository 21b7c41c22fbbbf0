"""Why a run is what it is: what started it, what it does or waits for, what stopped it.

Everything here is read from the run's events and from whether its process lives; a run whose
process is gone is never said to be running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.cli.view.advice import blamed_step, short
from infloop.cli.view.figures import clock_time, duration, moment
from infloop.cli.view.outline import rounds
from infloop.cli.view.terminal import indented, one_line, plural, safe
from infloop.model.values import as_text
from infloop.runtime.approvals import answer_hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.cli.view.run_view import Step, Story
    from infloop.model.approval import Approval
    from infloop.model.events import Cause
    from infloop.model.values import JsonObject
    from infloop.store.interfaces.liveness import InstanceRow, RunStatus
    from infloop.store.interfaces.run_log import RunRow

LAST_LINES = 8
INPUT_CHARS = 80
BUDGET = "budget:"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a run."""

    row: RunRow
    status: RunStatus
    story: Story
    ancestors: Sequence[RunRow]
    process: InstanceRow | None
    said: str
    now: int
    asked: Sequence[Approval] = ()


def cause_text(cause: Cause) -> str:
    """Return what made a run begin."""
    match cause.kind:
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


def reasons(known: Evidence) -> list[str]:
    """Return the causal chain, line by line."""
    return [
        *(f"  {line}" for line in _beginning(known)),
        *(f"  {line}" for line in _doings(known)),
        *(f"  {line}" for line in _present_or_end(known)),
    ]


# -- what started it -------------------------------------------------------------------------


def _beginning(known: Evidence) -> Iterator[str]:
    row, started = known.row, known.story.started
    yield f"started {cause_text(row.cause)} at {moment(row.started_at)}"
    for ancestor in known.ancestors:
        when = moment(ancestor.started_at)
        yield f"  run {short(ancestor.id)} was started {cause_text(ancestor.cause)} at {when}"
    if started and started.workdir:
        yield f"  in {one_line(started.workdir)}"
    given = inputs_text(started.inputs) if started else ""
    yield f"  with inputs {given}" if given else "  without inputs"


def _doings(known: Evidence) -> Iterator[str]:
    story = known.story
    cost = f", cost {story.cost}" if story.cost else ""
    yield f"did {plural(story.steps_done, 'step')}{cost}"
    for when in story.resumed_at:
        if known.row.cause.kind != "rewind" or when != story.resumed_at[0]:
            yield f"  its process had died; it was resumed at {moment(when)}"
    for notice in story.notices:
        yield f"  {notice.level}: {one_line(notice.message, 200)}"


# -- what it does, or what stopped it --------------------------------------------------------


def _present_or_end(known: Evidence) -> Iterator[str]:
    match known.status:
        case "running":
            yield from _present(known)
        case "stalled":
            yield f"its process {_process(known)} exists and gives no sign of life"
            yield f"  {_last_sign(known)}"
            yield from _in_flight(known)
        case "interrupted":
            yield f"its process {_process(known)} is gone; it never said how the run ended"
            yield f"  {_last_sign(known)}"
            yield from _in_flight(known)
        case _:
            yield from _end(known)


def _present(known: Evidence) -> Iterator[str]:
    stop = known.story.stop
    if stop:
        yield f"asked to stop at {moment(known.story.stopped_at)}: {one_line(stop.reason)}"
        yield "waits for its steps to end"
    positions = known.story.positions()
    if not positions:
        yield "is between two steps"
    for step in positions:
        yield f"now at {_position(step, known.now)}"
    for approval in known.asked:
        yield f"waiting for an answer: {one_line(approval.title)}"
        yield f"  {one_line(answer_hint(approval))}"
    yield from _last_lines(known.said)


def _position(step: Step, now: int) -> str:
    around = ", ".join(rounds(loop, current) for loop, current in step.loops())
    parts = [
        f"{one_line(step.path)} ({step.node_type}{f', {around}' if around else ''})",
        _how_long(step, now),
        one_line(step.means, 160),
    ]
    return ", ".join(part for part in parts if part)


def _how_long(step: Step, now: int) -> str:
    if step.waits_until:
        return f"waiting until {clock_time(step.waits_until, now)}"
    return f"for {duration(now - step.started_at)}"


def _process(known: Evidence) -> str:
    who = known.process
    return f"(pid {who.pid} on {one_line(who.host)})" if who else f"({one_line(known.row.owner)})"


def _last_sign(known: Evidence) -> str:
    beat = known.process.heartbeat_at if known.process else 0
    return f"its last sign of life was at {moment(max(beat, known.story.last_at))}"


def _in_flight(known: Evidence) -> Iterator[str]:
    for step in known.story.positions():
        busy = f", {one_line(step.means, 160)}" if step.means else ""
        yield f"it was at {one_line(step.path)} ({step.node_type}){busy}"
    yield from _last_lines(known.said)


def _end(known: Evidence) -> Iterator[str]:
    story = known.story
    finished = story.finished
    status = known.status
    when = moment(known.row.finished_at or story.finished_at)
    yield f"{status} at {when}, after {duration(story.finished_at - story.started_at)}"
    if finished is None:
        return
    if status == "succeeded":
        last = story.last_finished
        yield f"  it reached {one_line(last.path)}, and nothing follows" if last else "  it is over"
        return
    if story.stop:
        yield f"  asked to stop at {moment(story.stopped_at)}: {one_line(story.stop.reason)}"
    if status == "paused":
        yield f"  its money is spent: {one_line(finished.error.removeprefix(BUDGET).strip())}"
        yield f"  it goes on with {one_line(finished.failed_step)} when it is resumed"
        return
    if finished.interrupted:
        yield "  its process ended without finishing it; that was noticed and written down later"
        yield from _in_flight(known)
        return
    if finished.error.startswith(BUDGET):
        yield f"  its budget ran out: {one_line(finished.error.removeprefix(BUDGET).strip())}"
    elif not story.stop:
        yield from (f"  {line}" for line in safe(finished.error).split("\n"))
    yield from _failing_step(known)


def _failing_step(known: Evidence) -> Iterator[str]:
    path = blamed_step(known.story)
    step = next((each for each in known.story.steps() if each.path == path), None)
    if step is None:
        return
    if not step.error:
        yield f"the last step was {one_line(path)} ({step.node_type})"
        return
    yield f"step {one_line(path)} ({step.node_type}) did not succeed: {one_line(step.error, 400)}"
    onward = (
        f"and the run went on to {one_line(step.followed_by)}"
        if step.followed_by
        else "and nothing followed it"
    )
    yield f"  it left by {one_line(step.handle)!r} after {duration(step.duration_ms)}, {onward}"
    yield from _last_lines(known.said)


def _last_lines(said: str) -> Iterator[str]:
    lines = [line for line in said.split("\n") if line.strip()][-LAST_LINES:]
    if lines:
        yield "  it last said:"
        yield from (indented(one_line(line, 300), "    | ") for line in lines)
