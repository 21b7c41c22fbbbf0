"""Explain a run: what started it, what it does or waits for, what stopped it.

  infloop why last

Everything is read from the run's own events and from whether its process lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.run_names import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.cli.view.explain import Evidence
    from infloop.cli.view.run_view import Story
    from infloop.model.approval import Approval
    from infloop.store.interfaces.run_log import RunLog, RunRow
    from infloop.store.interfaces.store import Store

SAID_SEQS = 2_000
MOST_ANCESTORS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Print the causal chain and what can be done next."""
    from infloop import app
    from infloop.cli.view.advice import advice_lines, short
    from infloop.cli.view.explain import reasons
    from infloop.cli.view.terminal import one_line

    known = app.run_async(_gather(args.run))
    print(f"run {short(known.row.id)} of {one_line(known.row.workflow_name, 60)}: {known.status}")
    for line in reasons(known):
        print(line)
    print("next")
    for line in advice_lines(known.row.id, known.status, known.story, after="why"):
        print(line)
    return 0


async def _gather(name: str) -> Evidence:
    from infloop import app
    from infloop.cli.view.explain import Evidence
    from infloop.cli.view.replay import whole_story
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.runs.run_status import current_status

    async with app.open_store(app.settings()) as store:
        row = await find_run(store.run_log, name)
        status = await current_status(row, store.liveness)
        story = await whole_story(store, row.id)
        return Evidence(
            row=row,
            status=status,
            story=story,
            ancestors=await _ancestors(store.run_log, row),
            process=await store.liveness.instance(row.owner),
            said=await _said(store, row, story),
            now=SystemClock().now_ms(),
            asked=await _asked(row.id) if status == "running" else (),
        )


async def _asked(run_id: str) -> list[Approval]:
    """Return the questions that a run waits for."""
    from infloop import app

    async with app.open_approvals(app.settings()) as approvals:
        return [each for each in await approvals.waiting() if each.run_id == run_id]


async def _ancestors(run_log: RunLog, row: RunRow) -> list[RunRow]:
    """Return the runs this one was rewound from, nearest first, as far as they are known."""
    from infloop.errors import NotFound

    found: list[RunRow] = []
    while row.cause.parent_run and len(found) < MOST_ANCESTORS:
        try:
            row = await run_log.run(row.cause.parent_run)
        except NotFound:
            break
        found.append(row)
    return found


async def _said(store: Store, row: RunRow, story: Story) -> str:
    """Return the last that was said by the step this is about."""
    from infloop.cli.view.advice import blamed_step
    from infloop.cli.view.run_view import SAID_CHARS
    from infloop.model.events import Output

    paths = {step.path for step in story.positions()} or {blamed_step(story)}
    step = next((each for each in story.steps() if each.path in paths), None)
    if step is None:
        return ""
    last = step.last_seq or row.last_seq
    after, text = max(step.seq, last - SAID_SEQS), ""
    while batch := await store.run_log.events(row.id, after, last):
        pieces = (
            i.event.text for i in batch if isinstance(i.event, Output) and i.event.path in paths
        )
        text = (text + "".join(pieces))[-SAID_CHARS:]
        after = batch[-1].seq
    return text
