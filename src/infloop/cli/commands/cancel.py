"""Stop a run, whichever process drives it.

The process that drives the run ends its children and records the run as cancelled; this command
waits for that. A run that paused or whose process died is recorded as cancelled here.

  infloop cancel 1f3a9c2e
  infloop cancel last
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_run

if TYPE_CHECKING:
    import argparse

TIMEOUT_SECONDS = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_cancel(args.run))


async def _cancel(name: str) -> int:
    from infloop import app
    from infloop.application.caller import COMMAND_LINE
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note

    async with app.open_application(app.settings()) as application:
        run = await application.history.find_or_queued(name)
        done = await application.runs.cancel(run.run_id, COMMAND_LINE)
        shown = short(run.run_id)
        if done.before == "queued":
            print(f"{shown}  removed from the queue")
            return 0
        if done.status != "stopping":
            before = "it had paused" if done.before == "paused" else "its process had died"
            print(f"{shown}  {done.status} ({before})")
            return 0 if done.status == "cancelled" else 1
        settled = await application.live.settled(run.run_id, TIMEOUT_SECONDS)
    if settled is None:
        note(
            f"the process that drives {shown} has not responded yet; it will stop the run as soon "
            f"as it does (`infloop why {shown}` shows its state)"
        )
        return 1
    print(f"{shown}  {settled.status}")
    return 0 if settled.status == "cancelled" else 1
