"""How a run ended, as it stays on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.cli.view.advice import advice_lines, short
from infloop.cli.view.figures import duration
from infloop.cli.view.outline import outline
from infloop.cli.view.terminal import one_line, plural, safe

if TYPE_CHECKING:
    from infloop.cli.view.run_view import Story
    from infloop.store.interfaces.run_log import RunRow


@dataclass(frozen=True, slots=True)
class Summary:
    """The parts of a summary; all of it is safe to print."""

    title: str
    steps: list[str]
    totals: str
    error: str
    advice: list[str]


def sum_up(row: RunRow, story: Story) -> Summary | None:
    """Return the summary of a run that has settled."""
    finished = story.finished
    if finished is None:
        return None
    name, took = one_line(row.workflow_name, 40), duration(story.finished_at - story.started_at)
    total = plural(story.steps_done, "step")
    well = finished.status == "succeeded"
    # What an agent did in a worktree is still to be brought home.
    advised = not well or (story.changed and story.in_worktree)
    return Summary(
        title=f"{name}  {short(row.id)}  {finished.status} in {took}",
        steps=outline(story),
        totals=f"{total}, cost {story.cost}" if story.cost else total,
        error="" if well else f"{finished.status}: {safe(finished.error)}",
        advice=["next:", *advice_lines(row.id, finished.status, story)] if advised else [],
    )
