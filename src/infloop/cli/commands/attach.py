"""Watch a run that another process drives, live.

It may have been started with --detach, by `infloop serve`, or in another terminal. Ctrl+C stops
watching; the run goes on.

  infloop attach last
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json, add_run

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_json(parser, "events as JSON lines")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_attach(args))


async def _attach(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.watching import watch_other

    async with app.open_application(app.settings()) as application:
        run = await application.history.find(args.run)
        return await watch_other(
            application, application.live.attach(run.run_id), as_json=args.json
        )
