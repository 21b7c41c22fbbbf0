"""The commands that make sense next, given what became of a run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from infloop.cli.view.terminal import one_line
from infloop.model.nodes import node_model

if TYPE_CHECKING:
    from infloop.cli.view.run_view import Story
    from infloop.store.interfaces.liveness import RunStatus

SHORT_ID = 8
WIDEST = 44


def short(run_id: str) -> str:
    """Return as much of a run's id as people type."""
    return one_line(run_id[:SHORT_ID])


def next_commands(run_id: str, status: RunStatus, story: Story) -> list[tuple[str, str]]:
    """Return commands, each with what it does."""
    name = short(run_id)
    again = (f"infloop resume {name}", "goes on where it was; finished steps do not run again")
    why = (f"infloop why {name}", "what started it, and what stopped it")
    look = (f"infloop show {name}", "its steps and outputs")
    match status:
        case "running":
            return [
                (f"infloop logs {name} --follow", "shows what it says"),
                (f"infloop cancel {name}", "stops it"),
            ]
        case "stalled":
            return [
                (f"infloop cancel {name}", "stops it as soon as its process wakes up"),
                (f"infloop resume {name} --take-over", "goes on with it in a new process"),
            ]
        case "interrupted":
            return [again, (f"infloop cancel {name}", "settles it as cancelled"), look]
        case "paused":
            return [
                (f"infloop resume {name} --max-cost-usd USD", "grants it money and goes on"),
                (f"infloop cancel {name}", "settles it as cancelled"),
                look,
            ]
        case "succeeded":
            said = (f"infloop logs {name}", "what its steps said")
            return [*_about_files(name, story), look, said]
        case "failed" | "cancelled":
            interrupted = story.finished is not None and story.finished.interrupted
            goes_on = [again] if interrupted else []
            return [
                why,
                *goes_on,
                *_begin_again(name, story),
                *_about_files(name, story),
                look,
            ]


def _about_files(name: str, story: Story) -> list[tuple[str, str]]:
    """Return what can be done with what a run changed."""
    if not story.changed:
        return []
    home = (f"infloop apply {name}", "brings the agent's work home")
    return [(f"infloop diff {name}", "what it changed"), *([home] if story.in_worktree else [])]


def _begin_again(name: str, story: Story) -> list[tuple[str, str]]:
    step = blamed_step(story)
    imported = story.started is not None and story.started.cause.kind == "import"
    if not step or imported:  # a record does not hold the workflow
        return []
    target = shlex.quote(one_line(step))
    return [(f"infloop rewind {name} --to {target}", "begins a new run at that step")]


def blamed_step(story: Story) -> str:
    """Return the path of the step to look at: the one that failed, or was the last."""
    finished = story.finished
    named = finished.failed_step if finished else ""
    if named and (story.last_failed is None or not _is_end(named, story)):
        return named
    step = story.last_failed or story.last_finished
    return step.path if step else ""


def _is_end(path: str, story: Story) -> bool:
    """Say whether this is the End that a failure led to: beginning again there changes nothing."""
    last = story.last_finished
    return last is not None and last.path == path and node_model(last.node_type).is_end


def advice_lines(run_id: str, status: RunStatus, story: Story, *, after: str = "run") -> list[str]:
    """Return the commands as lines to read and copy; `after` is the command that was just given."""
    commands = [
        (command, does)
        for command, does in next_commands(run_id, status, story)
        if command.split()[1] != after
    ]
    width = max((len(command) for command, _ in commands), default=0)
    if width > WIDEST:  # a long path: what it does goes below it
        return [line for command, does in commands for line in (f"  {command}", f"      {does}")]
    return [f"  {command:<{width}}  {does}" for command, does in commands]
