"""Go on with a run whose process died, or that paused because its money was spent.

It continues at the step that was interrupted; no finished step runs again. Without RUN, every
interrupted run goes on whose workflow says `"onCrash": "resume"`.

  infloop resume 1f3a9c2e
  infloop resume 1f3a9c2e --max-cost-usd 5
  infloop resume

A run whose process still exists but gives no sign of life is left alone unless you add
--take-over; the old process can then write nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.run_names import HELP, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.cli.watching import Begun
    from infloop.runtime.runs.service import RunService
    from infloop.store.audit.log import AuditLog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("run", metavar="RUN", nargs="?", help=HELP)
    parser.add_argument(
        "--take-over", action="store_true", help="take the run from a process that is stuck"
    )
    parser.add_argument(
        "--max-cost-usd",
        type=_amount,
        metavar="USD",
        help="what the run may spend in all, in place of its workflow's own limit",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def _amount(text: str) -> float:
    """Read an amount of money."""
    import argparse

    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount in US dollars; use 2.50")
    return amount


def main(args: argparse.Namespace) -> int:
    """Resume the runs and see them through."""
    from infloop import app

    return app.run_async(_resume(args))


async def _resume(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.watching import see_through

    settings = app.settings()
    async with app.open_audit(settings) as audit, app.open_service(settings, audit) as service:
        return await see_through(service, lambda: _begin(service, audit, args), as_json=args.json)


async def _begin(service: RunService, audit: AuditLog, args: argparse.Namespace) -> list[Begun]:
    from infloop.cli.view.terminal import note

    if args.run:
        row = await find_run(service.store.run_log, args.run)
        return [await _begin_one(service, audit, row.id, args)]
    found = await service.recover()
    for line in found.messages:
        note(line)
    waiting = found.resumable
    if not waiting:
        note("there is no interrupted run to resume")
    return [await _begin_one(service, audit, run_id, args) for run_id in waiting]


async def _begin_one(
    service: RunService, audit: AuditLog, run_id: str, args: argparse.Namespace
) -> Begun:
    from infloop.cli.recording import record
    from infloop.cli.view.advice import short
    from infloop.cli.view.terminal import note, plural
    from infloop.cli.watching import begun

    row = await service.store.run_log.run(run_id)
    await record(audit, "run.resumed", row)
    await service.resume(run_id, take_over=args.take_over, max_cost_usd=args.max_cost_usd)
    note(f"run {short(run_id)} goes on after {plural(row.steps, 'step')}")
    return begun(service, run_id, row.last_seq)
