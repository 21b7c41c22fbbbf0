"""Print the output of a run's steps, with when each started and how it ended.

  infloop logs last
  infloop logs 1f3a9c2e --step 'loop-1[3]'
  infloop logs 1f3a9c2e --follow

--follow continues until the run has settled, whichever process drives it. --json prints every
event as one JSON object a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json, add_run

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--follow", action="store_true", help="continue until the run has settled")
    parser.add_argument(
        "--step", metavar="PATH", help="only this step, or what is inside this loop, round or call"
    )
    add_json(parser, "events as JSON lines")


def main(args: argparse.Namespace) -> int:
    from functools import partial

    from infloop import app

    return app.read(partial(_logs, args), waits=args.follow)


async def _logs(args: argparse.Namespace, application: Application) -> int:
    from infloop.cli.view.plain import JsonView, PlainView
    from infloop.cli.view.terminal import terminal_columns
    from infloop.model.events import is_within, step_path

    run = await application.history.find(args.run)
    columns = terminal_columns() if args.follow else 0
    view = JsonView() if args.json else PlainView(started_at=run.started_at, columns=columns)
    batches = (
        application.live.follow(run.run_id)
        if args.follow
        else application.history.events(run.run_id)
    )
    async for batch in batches:
        view.show([item for item in batch if is_within(step_path(item.event), args.step or "")])
    view.close()
    return 0
