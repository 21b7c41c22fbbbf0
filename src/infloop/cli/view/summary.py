"""How a run ended, as it stays on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.application.runs.next_actions import next_actions
from infloop.cli.view.advice import advice_lines, short
from infloop.cli.view.figures import cost, duration
from infloop.cli.view.outline import outline
from infloop.cli.view.terminal import one_line, plural, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.application.runs.view import RunView


class Summary(msgspec.Struct, frozen=True):
    """The parts of a summary; all of it is safe to print."""

    title: str
    steps: list[str]
    totals: str
    changes: Sequence[str]
    error: str
    advice: list[str]


def summarize(
    run_id: str, workflow_name: str, view: RunView, changes: Sequence[str] = ()
) -> Summary | None:
    """Return the summary of a run that has settled; `changes` are lines about changed files."""
    finished = view.finished
    if finished is None:
        return None
    name = one_line(workflow_name, 40)
    took = duration(view.finished_at - view.started_at)
    steps = plural(view.steps_done, "step")
    spent = cost(view.cost)
    succeeded = finished.status == "succeeded"
    # Changes that an agent made in a worktree have to be applied.
    has_advice = not succeeded or (view.changed and view.in_worktree)
    actions = next_actions(finished.status, view) if has_advice else []
    return Summary(
        title=f"{name}  {short(run_id)}  {finished.status} in {took}",
        steps=outline(view),
        totals=f"{steps}, cost {spent}" if spent else steps,
        changes=changes,
        error="" if succeeded else f"{finished.status}: {safe(finished.error)}",
        advice=["next:", *advice_lines(run_id, finished.status, actions)] if has_advice else [],
    )
