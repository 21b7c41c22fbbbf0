"""A run's workflow whose file has changed, as lines to read."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from infloop.application.runs.models import WorkflowFile
from infloop.cli.view.advice import short

if TYPE_CHECKING:
    from msgspec import UnsetType

_SAID = {
    "changed": "has changed since the run began",
    "gone": "does not exist any more",
    "broken": "has changed since the run began, and `infloop check` finds errors in it",
}


def changed_lines(found: WorkflowFile | UnsetType, run_id: str, step: str = "STEP") -> list[str]:
    """Return what is said about the file of a run that goes on; nothing if it is the same."""
    if not isinstance(found, WorkflowFile):
        return []
    lines = [f"{found.file} {_SAID[found.state]}; the run goes on with what it began with"]
    if found.state == "changed":
        to, file = shlex.quote(step), shlex.quote(found.file)
        lines.append(f"  `infloop rewind {short(run_id)} --to {to} --file {file}` uses the new one")
    return lines
