"""Continue a run whose process died, or that paused because its budget is used up.

It continues at the step that was interrupted; no finished step runs again. Without RUN, every
interrupted run continues whose workflow says `"onCrash": "resume"`.

  infloop resume 1f3a9c2e
  infloop resume 1f3a9c2e --max-cost-usd 5
  infloop resume

A run whose process still exists but does not respond is left alone unless you add --take-over; the
old process can then write nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import RUN_HELP, add_json, amount

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.application.runs.models import RunSummary
    from infloop.application.runs.watched_run import WatchedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help=RUN_HELP)
    parser.add_argument(
        "--take-over", action="store_true", help="take the run from a process that is stuck"
    )
    parser.add_argument(
        "--max-cost-usd",
        type=amount,
        metavar="USD",
        help="what the run may spend in total, instead of its workflow's own limit",
    )
    add_json(parser, "events as JSON lines")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_resume(args))


async def _resume(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.watching import watch_runs

    async with app.open_application(app.settings()) as application:
        return await watch_runs(application, lambda: _start(application, args), as_json=args.json)


async def _start(application: Application, args: argparse.Namespace) -> list[WatchedRun]:
    from infloop.cli.view.terminal import note

    if args.run:
        runs = [await application.history.find(args.run)]
    else:
        found = await application.runs.recover()
        for line in found.messages:
            note(line)
        runs = [await application.history.find(run_id) for run_id in found.resumable]
        if not runs:
            note("there is no interrupted run to resume")
    return [await _start_one(application, run, args) for run in runs]


async def _start_one(
    application: Application, run: RunSummary, args: argparse.Namespace
) -> WatchedRun:
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note, plural
    from infloop.cli.view.workflow_file import changed_lines

    started = await application.runs.resume(
        run.run_id, COMMAND_LINE, take_over=args.take_over, max_cost_usd=args.max_cost_usd
    )
    watched = await application.live.watch(started)
    for line in changed_lines(started.workflow_file, run.run_id):
        note(line)
    note(f"run {short(run.run_id)} continues after {plural(run.steps, 'step')}")
    return watched
