"""The commands that make sense next, given the status of a run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from infloop.cli.view.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.application.runs.models import RunStatus
    from infloop.application.runs.next_actions import NextAction

SHORT_ID = 8
MAX_COMMAND_WIDTH = 44

_COMMANDS = {
    "follow": ("infloop logs {run} --follow", "shows its output"),
    "resume": (
        "infloop resume {run}",
        "continues where it stopped; finished steps do not run again",
    ),
    "take-over": ("infloop resume {run} --take-over", "continues it in a new process"),
    "raise-limit": ("infloop resume {run} --max-cost-usd USD", "raises its limit and continues"),
    "why": ("infloop why {run}", "what started it, and what stopped it"),
    "rewind": ("infloop rewind {run} --to {step}", "starts a new run at that step"),
    "diff": ("infloop diff {run}", "what it changed"),
    "apply": ("infloop apply {run}", "brings the changes to your working tree"),
    "show": ("infloop show {run}", "its steps and outputs"),
    "logs": ("infloop logs {run}", "the output of its steps"),
}
_CANCEL = "infloop cancel {run}"
_CANCEL_EFFECTS = {
    "running": "stops it",
    "stalled": "stops it as soon as its process responds",
}


def short(run_id: str) -> str:
    """Return as much of a run's id as people type."""
    return one_line(run_id[:SHORT_ID])


def advice_lines(
    run_id: str, status: RunStatus, actions: Sequence[NextAction], *, after: str = "run"
) -> list[str]:
    """Return commands to read and copy; `after` is the command that was just given."""
    found = [_command(run_id, status, each) for each in actions]
    commands = [each for each in found if each[0].split()[1] != after]
    width = max((len(command) for command, _ in commands), default=0)
    if width > MAX_COMMAND_WIDTH:  # a long path: the effect goes below the command
        return [line for command, does in commands for line in (f"  {command}", f"      {does}")]
    return [f"  {command:<{width}}  {does}" for command, does in commands]


def _command(run_id: str, status: RunStatus, action: NextAction) -> tuple[str, str]:
    """Return a command, and what it does."""
    if action.action == "cancel":
        command, does = _CANCEL, _CANCEL_EFFECTS.get(status, "records it as cancelled")
    else:
        command, does = _COMMANDS[action.action]
    step = shlex.quote(one_line(action.step))
    return command.format(run=short(run_id), step=step), does
