"""Explain a run: what started it, what it does or waits for, what stopped it.

  infloop why last

Everything is derived from the run's events and from whether its process is alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_run

if TYPE_CHECKING:
    import argparse

    from infloop.application.runs.explain import Explanation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)


def main(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.advice import advice_lines, short
    from infloop.cli.view.explain import explanation_lines
    from infloop.cli.view.terminal import one_line

    known = app.run_async(_explain(args.run))
    run = known.run
    print(f"run {short(run.run_id)} of {one_line(run.workflow_name, 60)}: {run.status}")
    for line in explanation_lines(known):
        print(line)
    print("next")
    for line in advice_lines(run.run_id, run.status, known.next, after="why"):
        print(line)
    return 0


async def _explain(name: str) -> Explanation:
    from infloop import app

    async with app.open_application(app.settings()) as application:
        run = await application.history.find(name)
        return await application.explanations.explain(run.run_id)
