"""List runs, newest first, or search their inputs, outputs and errors.

  infloop runs
  infloop runs --workflow fix-tests --status failed
  infloop runs --search "connection refused"
  infloop runs --refused

A search finds the runs in which one text contains all words. The last word may be incomplete, and
"words in quotes" must be adjacent. A status is derived from evidence: a run whose process is gone
is interrupted, whatever it wrote last.

Below the runs stands what did not become one: queued runs that cannot start, and triggers that
fired and were refused, each with the reason. --refused lists all of the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import MAX_COUNT, add_json, count

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.application.runs.models import QueuedRun, RefusedFiring, RunSummary
    from infloop.model.events import Cause

MAX_REFUSED = 5
"""How many refused firings stand below the runs."""

STATUSES = ("running", "stalled", "interrupted", "paused", "succeeded", "failed", "cancelled")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--search", metavar="TEXT", help="words that occur in the run")
    parser.add_argument("--workflow", metavar="ID", help="only runs of this workflow")
    parser.add_argument("--status", choices=STATUSES, metavar="S", help=", ".join(STATUSES))
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="default: 20")
    parser.add_argument(
        "--refused", action="store_true", help="triggers that fired and were refused"
    )
    add_json(parser, "one JSON object a line")


def main(args: argparse.Namespace) -> int:
    from functools import partial

    from infloop import app

    # A search first indexes what is not indexed yet.
    return app.read(partial(_runs, args), waits=bool(args.search))


async def _runs(args: argparse.Namespace, application: Application) -> int:
    from infloop.cli.view.terminal import note

    if args.refused:
        refused = await application.history.refused(args.workflow, args.limit)
        _print_refused(refused, as_json=args.json)
        return 0
    page = await application.history.page(
        workflow_id=args.workflow,
        status=args.status,
        search=args.search,
        limit=args.limit,
        max_searched=MAX_COUNT,
    )
    if args.json:
        from infloop.application.models import to_json
        from infloop.cli.view.terminal import json_line

        for run in page.runs:
            print(json_line(to_json(run)))
        return 0
    if page.runs:
        _print_table(page.runs)
    else:
        note("no run was found")
    _print_held(page.held)
    if page.refused:
        print("refused")
        _print_refused(page.refused[:MAX_REFUSED])
        if len(page.refused) > MAX_REFUSED:
            print("  and more: `infloop runs --refused` lists them")
    return 0


def _print_held(held: list[QueuedRun]) -> None:
    from infloop.cli.view.advice import short
    from infloop.cli.view.figures import moment
    from infloop.cli.view.terminal import one_line

    if held:
        print("held in the queue (`infloop cancel RUN` removes one)")
    for run in held:
        print(
            f"  {short(run.run_id)}  {moment(run.queued_at)}  {one_line(run.workflow_id, 60)}: "
            f"{one_line(run.reason, 300)}"
        )


def _print_refused(refused: list[RefusedFiring], *, as_json: bool = False) -> None:
    from infloop.application.models import to_json
    from infloop.cli.view.figures import moment
    from infloop.cli.view.terminal import json_line, one_line

    for each in refused:
        if as_json:
            print(json_line(to_json(each)))
            continue
        times = f" ({each.count} times)" if each.count > 1 else ""
        print(
            f"  {moment(each.at)}  {each.trigger_kind} {one_line(each.trigger_name, 60)!r} of "
            f"{one_line(each.workflow_id, 60)}{times}: {one_line(each.message, 300)}"
        )


def _print_table(runs: list[RunSummary]) -> None:
    from infloop.cli.view.advice import short
    from infloop.cli.view.figures import duration, moment, short_cost
    from infloop.cli.view.terminal import one_line

    names = f"{'took':>7}  {'steps':>6}  {'cost':>9}"
    print(f"{'run':<8}  {'status':<11}  {'started':<19}  {names}  workflow")
    for run in runs:
        took = "" if run.duration_ms is None else duration(run.duration_ms)
        name = f"{one_line(run.workflow_name, 60)}{_trigger(run.cause)}"
        print(
            f"{short(run.run_id):<8}  {run.status:<11}  {moment(run.started_at):<19}  {took:>7}  "
            f"{run.steps:>6}  {short_cost(run.cost):>9}  {name}"
        )
        if run.match:
            match = run.match
            place = f"{one_line(match.step)} {match.kind}".strip()
            more = f" (and {match.places - 1} more places)" if match.places > 1 else ""
            print(f"          {place}: {one_line(match.text, 160)}{more}")


def _trigger(cause: Cause) -> str:
    """Return the trigger that started a run, if one did."""
    from typing import get_args

    from infloop.cli.view.terminal import one_line
    from infloop.model.events import TriggerKindName

    is_trigger = cause.kind in get_args(TriggerKindName)
    return f" ({cause.kind} {one_line(cause.detail, 60)!r})" if is_trigger else ""
