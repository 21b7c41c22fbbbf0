"""List the runs that wait for their turn, and why.

A run waits until a server or worker has capacity for it. One that cannot start is held with the
reason. One that requires labels waits for a worker that has them. `infloop cancel RUN` removes a
run from the queue.

  infloop queue
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.application.runs.queue import QueueItem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    from functools import partial

    from infloop import app

    return app.read(partial(_list, as_json=args.json))


async def _list(application: Application, *, as_json: bool) -> int:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, note

    found = (await application.queue.all()).without_credentials()
    if as_json:
        print(json_line(to_json(found)))
        return 0
    for item in found.items:
        print(_line(item))
    if not found.items:
        note("no run waits")
    return 0


def _line(item: QueueItem) -> str:
    from infloop.cli.view.advice import short
    from infloop.cli.view.figures import moment
    from infloop.cli.view.terminal import one_line

    place = "held" if item.held else f"{item.position}." if item.position else item.state
    why = one_line(item.held or item.waits_for, 200)
    facts = (short(item.run_id), f"{place:<5}", one_line(item.workflow_id, 40))
    return "  ".join(filter(None, (*facts, f"since {moment(item.received_at)}", why)))
