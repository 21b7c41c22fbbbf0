"""A run's steps as an indented list, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.changes import changed
from infloop.cli.view.figures import duration, money, size, used_tokens
from infloop.cli.view.terminal import INDENT, one_line, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.application.runs.view import FrameView, Preview, RunView, StepView

LINE_CHARS = 100
# Outputs that the step's line shows in another form.
HIDDEN_OUTPUTS = frozenset(
    {
        "tail",
        "detail",
        "met",
        "timedOut",
        "durationMs",
        "costUsd",
        "errorMessage",
        "iterations",
        "broke",
        "exhausted",
    }
)


def outline(view: RunView, *, alive: bool = False, outputs: bool = False) -> list[str]:
    """Return the steps of a run; `alive` says whether unfinished steps are in progress."""
    earlier = view.steps_not_listed
    before = [f"{INDENT}… {plural(earlier, 'earlier step')}"] if earlier else []
    return [*before, *_frame_lines(view.root, INDENT, alive=alive, outputs=outputs)]


def _frame_lines(frame: FrameView, prefix: str, *, alive: bool, outputs: bool) -> Iterator[str]:
    for step in frame.steps.first:
        yield from _step_lines(step, prefix, alive=alive, outputs=outputs)
    if frame.steps.omitted:
        yield f"{prefix}… {frame.steps.omitted} more steps"
    for step in frame.steps.last:
        yield from _step_lines(step, prefix, alive=alive, outputs=outputs)


def _step_lines(step: StepView, prefix: str, *, alive: bool, outputs: bool) -> Iterator[str]:
    yield prefix + step_line(step, alive=alive)
    if outputs:
        printed: set[Preview] = set()
        for name, output in step.outputs.items():
            if name not in HIDDEN_OUTPUTS and output.size and output not in printed:
                printed.add(output)
                yield f"{prefix}{INDENT * 2}{output_line(name, output)}"
    for frame in step.frames.first:
        yield from _inner_lines(frame, prefix + INDENT, alive=alive, outputs=outputs)
    if step.frames.omitted:
        inner = "rounds" if step.opens == "round" else "branches"
        yield f"{prefix}{INDENT}… {step.frames.omitted} more {inner}"
    for frame in step.frames.last:
        yield from _inner_lines(frame, prefix + INDENT, alive=alive, outputs=outputs)


def _inner_lines(frame: FrameView, prefix: str, *, alive: bool, outputs: bool) -> Iterator[str]:
    if frame.name:
        yield prefix + one_line(frame.name)
        prefix += INDENT
    yield from _frame_lines(frame, prefix, alive=alive, outputs=outputs)


def step_line(step: StepView, *, alive: bool) -> str:
    """Return the outcome of a step: `✓ tests  condition  met: exit 0  0.2s`."""
    name = step.path.rpartition("/")[2]
    parts = [f"{_mark(step, alive=alive)} {one_line(name, 60)}", step.node_type, _outcome(step)]
    if not step.running and step.duration_ms:
        parts.append(duration(step.duration_ms))
    if step.changed is not None and step.changed.files:
        after = step.changed
        parts.append(changed(after.files, after.insertions, after.deletions))
    if step.cost_usd is not None:
        parts.append(money(step.cost_usd))
    else:
        parts.append(used_tokens(*step.tokens))
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}")
    return "  ".join(part for part in parts if part)


def _mark(step: StepView, *, alive: bool) -> str:
    if step.running:
        return "●" if alive else "◌"
    return "✗" if step.error else "✓"


def _outcome(step: StepView) -> str:
    if step.running:
        return round_text(step.rounds, step.max_rounds) if step.opens == "round" else ""
    if step.error:
        return f"{one_line(step.handle)}: {one_line(step.error, LINE_CHARS)}"
    if step.opens == "round":
        rounds = plural(step.rounds, "round")
        if "exhausted" in step.outputs:
            return f"used up its {rounds}"
        broke = step.outputs.get("broke")
        return f"{rounds}, ended by its condition" if broke and broke.text == "true" else rounds
    if step.opens == "branch":
        done = step.outputs.get("completed")
        total = plural(len(step.frames), "branch").replace("branchs", "branches")
        return f"{done.text if done else '?'} of {total} succeeded"
    detail = step.outputs.get("detail")
    reason = f": {one_line(detail.text, LINE_CHARS)}" if detail and detail.text else ""
    return "" if step.handle == "next" else one_line(step.handle) + reason


def round_text(current: int, limit: int | None) -> str:
    """Return how far a loop is: `round 3 of 5`, or `round 3` without a limit."""
    if not current:
        return "first check"
    return f"round {current}" if limit is None else f"round {current} of {limit}"


def output_line(name: str, output: Preview) -> str:
    """Return as much of an output as fits a line, and its size if that is not all."""
    text = one_line(output.text.strip(), LINE_CHARS - 30)
    cut = not output.is_complete or text.endswith("…")
    return f"{one_line(name)}: {text}{f' ({size(output.size)})' if cut else ''}"
