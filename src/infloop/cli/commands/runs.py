"""List runs, newest first, or search what they were given, said and returned.

  infloop runs
  infloop runs --workflow fix-tests --status failed
  infloop runs --search "connection refused"

A search finds the runs in which all words occur at one place; the last word may be a beginning, and
"words in quotes" must stand together. A status is what the evidence says: a run whose process is
gone is interrupted, whatever it last wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from infloop.model.values import JsonObject
    from infloop.store.interfaces.run_log import RunRow, SearchHit, StoredStatus
    from infloop.store.interfaces.store import Store

STATUSES = ("running", "stalled", "interrupted", "paused", "succeeded", "failed", "cancelled")
MOST = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("--search", metavar="TEXT", help="words that occur in the run")
    parser.add_argument("--workflow", metavar="ID", help="only runs of this workflow")
    parser.add_argument("--status", choices=STATUSES, metavar="S", help=", ".join(STATUSES))
    parser.add_argument("--limit", type=_count, default=20, metavar="N", help="default: 20")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def _count(text: str) -> int:
    import argparse

    if not text.isdecimal() or not 0 < int(text[:9]) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST}")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Print the runs."""
    from infloop import app

    return app.run_async(_runs(args))


async def _runs(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.terminal import json_line, note

    count = 0
    async with app.open_store(app.settings()) as store:
        async for row, hit in _found(store, args):
            status = await _status(store, row)
            if args.status not in (None, status):
                continue
            if args.json:
                print(json_line(run_object(row, status) | (_hit_object(hit) if hit else {})))
            else:
                _print_row(row, status, hit, first=count == 0)
            count += 1
            if count == args.limit:
                break
    if not count and not args.json:
        note("no run was found")
    return 0


async def _found(
    store: Store, args: argparse.Namespace
) -> AsyncIterator[tuple[RunRow, SearchHit | None]]:
    """Yield runs, newest first, that may be meant; what is shown is still to be counted."""
    if args.search is not None:
        for hit in await store.run_log.search(args.search, limit=MOST):
            if args.workflow in (None, hit.run.workflow_id):
                yield hit.run, hit
        return
    before = None
    page_size = min(args.limit, 200)
    while page := await store.run_log.runs(
        workflow_id=args.workflow, status=_stored(args.status), limit=page_size, before=before
    ):
        for row in page:
            yield row, None
        before = page[-1].cursor


def _stored(status: str | None) -> StoredStatus | None:
    return "running" if status in ("stalled", "interrupted") else status  # type: ignore[return-value]


async def _status(store: Store, row: RunRow) -> str:
    from infloop.runtime.runs.run_status import current_status

    return await current_status(row, store.liveness)


def run_object(row: RunRow, status: str) -> JsonObject:
    """Return a run for another program."""
    import msgspec

    cause: JsonObject = msgspec.to_builtins(row.cause)
    return {
        "runId": row.id,
        "workflowId": row.workflow_id,
        "workflowName": row.workflow_name,
        "status": status,
        "startedAt": row.started_at,
        "finishedAt": row.finished_at,
        "steps": row.steps,
        "error": row.error,
        "failedStep": row.failed_step,
        "cause": cause,
        "correlationId": row.correlation_id,
        "epoch": row.epoch,
    }


def _hit_object(hit: SearchHit) -> JsonObject:
    return {"match": {"step": hit.path, "in": hit.kind, "text": hit.snippet, "places": hit.matches}}


def _print_row(row: RunRow, status: str, hit: SearchHit | None, *, first: bool) -> None:
    from infloop.cli.view.advice import short
    from infloop.cli.view.figures import duration, moment
    from infloop.cli.view.terminal import one_line

    if first:
        print(f"{'run':<8}  {'status':<11}  {'started':<19}  {'took':>7}  {'steps':>6}  workflow")
    took = "" if row.finished_at is None else duration(row.finished_at - row.started_at)
    print(
        f"{short(row.id):<8}  {status:<11}  {moment(row.started_at):<19}  {took:>7}  "
        f"{row.steps:>6}  {one_line(row.workflow_name, 60)}"
    )
    if hit is not None:
        place = f"{one_line(hit.path)} {hit.kind}".strip()
        more = f" (and {hit.matches - 1} more places)" if hit.matches > 1 else ""
        print(f"          {place}: {one_line(hit.snippet, 160)}{more}")
