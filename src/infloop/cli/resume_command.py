"""Go on with a run whose process died.

It continues at the step that was interrupted; no finished step runs again. Without RUN, every
interrupted run goes on whose workflow says `"onCrash": "resume"`.

  infloop resume 1f3a9c2e
  infloop resume

A run whose process still exists but gives no sign of life is left alone unless you add
--take-over; the old process can then write nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.naming import HELP, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.cli.watching import Begun
    from infloop.runtime.service import RunService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("run", metavar="RUN", nargs="?", help=HELP)
    parser.add_argument(
        "--take-over", action="store_true", help="take the run from a process that is stuck"
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def main(args: argparse.Namespace) -> int:
    """Resume the runs and see them through."""
    from infloop import app

    return app.run_async(_resume(args))


async def _resume(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.watching import see_through

    async with app.open_service(app.settings()) as service:
        return await see_through(service, lambda: _begin(service, args), as_json=args.json)


async def _begin(service: RunService, args: argparse.Namespace) -> list[Begun]:
    from infloop.cli.terminal import note

    if args.run:
        row = await find_run(service.journal, args.run)
        return [await _begin_one(service, row.id, take_over=args.take_over)]
    waiting = (await service.recover()).resumable
    if not waiting:
        note("there is no interrupted run to resume")
    return [await _begin_one(service, run_id, take_over=False) for run_id in waiting]


async def _begin_one(service: RunService, run_id: str, *, take_over: bool) -> Begun:
    from infloop.cli.advice import short
    from infloop.cli.terminal import note, plural
    from infloop.cli.watching import begun

    row = await service.journal.run(run_id)
    await service.resume(run_id, take_over=take_over)
    note(f"run {short(run_id)} goes on after {plural(row.steps, 'step')}")
    return begun(service, run_id, row.last_seq)
