"""A run's steps as an indented list, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.changes import changed
from infloop.cli.view.figures import duration, money, size
from infloop.cli.view.terminal import INDENT, one_line, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.cli.view.run_view import Frame, Preview, Step, Story

LINE_CHARS = 100
# Said elsewhere in the step's line.
QUIET_OUTPUTS = frozenset(
    {"detail", "met", "timedOut", "durationMs", "costUsd", "errorMessage", "iterations", "broke"}
)


def outline(story: Story, *, alive: bool = False, outputs: bool = False) -> list[str]:
    """Return the steps of a run; `alive` says whether those without an end are being performed."""
    before = [f"{INDENT}… {plural(story.untold, 'earlier step')}"] if story.untold else []
    return [*before, *_frame_lines(story.root, INDENT, alive=alive, outputs=outputs)]


def _frame_lines(frame: Frame, prefix: str, *, alive: bool, outputs: bool) -> Iterator[str]:
    for step in frame.steps.first:
        yield from _step_lines(step, prefix, alive=alive, outputs=outputs)
    if frame.steps.omitted:
        yield f"{prefix}… {frame.steps.omitted} more steps"
    for step in frame.steps.last:
        yield from _step_lines(step, prefix, alive=alive, outputs=outputs)


def _step_lines(step: Step, prefix: str, *, alive: bool, outputs: bool) -> Iterator[str]:
    yield prefix + step_line(step, alive=alive)
    if outputs:
        told: set[Preview] = set()
        for name, shown in step.outputs.items():
            if name not in QUIET_OUTPUTS and shown.size and shown not in told:
                told.add(shown)
                yield f"{prefix}{INDENT * 2}{output_line(name, shown)}"
    for frame in step.frames.first:
        yield from _inner_lines(frame, prefix + INDENT, alive=alive, outputs=outputs)
    if step.frames.omitted:
        inner = "rounds" if step.opens == "round" else "branches"
        yield f"{prefix}{INDENT}… {step.frames.omitted} more {inner}"
    for frame in step.frames.last:
        yield from _inner_lines(frame, prefix + INDENT, alive=alive, outputs=outputs)


def _inner_lines(frame: Frame, prefix: str, *, alive: bool, outputs: bool) -> Iterator[str]:
    if frame.name:
        yield prefix + one_line(frame.name)
        prefix += INDENT
    yield from _frame_lines(frame, prefix, alive=alive, outputs=outputs)


def step_line(step: Step, *, alive: bool) -> str:
    """Return what became of a step: `✓ tests  condition  met: exit 0  0.2s`."""
    name = step.path.rpartition("/")[2]
    parts = [f"{_mark(step, alive=alive)} {one_line(name, 60)}", step.node_type, _outcome(step)]
    if not step.running and step.duration_ms:
        parts.append(duration(step.duration_ms))
    if step.changed is not None and step.changed.files:
        saved = step.changed
        parts.append(changed(saved.files, saved.insertions, saved.deletions))
    if step.cost_usd is not None:
        parts.append(money(step.cost_usd))
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}")
    return "  ".join(part for part in parts if part)


def _mark(step: Step, *, alive: bool) -> str:
    if step.running:
        return "●" if alive else "◌"
    return "✗" if step.error else "✓"


def _outcome(step: Step) -> str:
    if step.running:
        return rounds(step) if step.opens == "round" else ""
    if step.error:
        return f"{one_line(step.handle)}: {one_line(step.error, LINE_CHARS)}"
    if step.opens == "round":
        broke = step.outputs.get("broke")
        ended = ", ended by its condition" if broke and broke.text == "true" else ""
        return f"{plural(step.rounds, 'round')}{ended}"
    if step.opens == "branch":
        done = step.outputs.get("completed")
        total = plural(len(step.frames), "branch").replace("branchs", "branches")
        return f"{done.text if done else '?'} of {total} succeeded"
    detail = step.outputs.get("detail")
    said = f": {one_line(detail.text, LINE_CHARS)}" if detail and detail.text else ""
    return "" if step.handle == "next" else one_line(step.handle) + said


def rounds(loop: Step, current: int | None = None) -> str:
    """Return how far a loop is: `round 3 of 5`, or `round 3` when nobody counts."""
    now = loop.rounds if current is None else current
    return (
        f"round {now}" if loop.rounds_at_most is None else f"round {now} of {loop.rounds_at_most}"
    )


def output_line(name: str, shown: Preview) -> str:
    """Return one output: as much as fits a line, and how much there is."""
    text = one_line(shown.text.strip(), LINE_CHARS - 30)
    cut = not shown.whole or text.endswith("…")
    return f"{one_line(name)}: {text}{f' ({size(shown.size)})' if cut else ''}"
