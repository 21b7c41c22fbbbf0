"""How a run ended, as it stays on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.cli.advice import advice_lines, short
from infloop.cli.figures import duration, money
from infloop.cli.outline import outline
from infloop.cli.terminal import one_line, plural, safe

if TYPE_CHECKING:
    from infloop.cli.story import Story
    from infloop.store.base import RunRow


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
    return Summary(
        title=f"{name}  {short(row.id)}  {finished.status} in {took}",
        steps=outline(story),
        totals=total if story.cost_usd is None else f"{total}, cost {money(story.cost_usd)}",
        error="" if well else f"{finished.status}: {safe(finished.error)}",
        advice=[] if well else ["next:", *advice_lines(row.id, finished.status, story)],
    )
