"""Start the runs in the queue, without a server.

A worker drives runs that servers have accepted: on this machine, or with INFLOOP_DATABASE on any
machine that reaches the database. It needs no files of the server: a queued run carries its
workflow and the manifests of its providers. Keys are those of the worker's own environment.

A workflow that `requires` labels is run by a worker that has all of them. Ctrl+C or SIGTERM stops
it: children end, runs are settled, and queued runs stay in the queue. With --drain it then takes no
more runs and waits for those it has; a second signal stops these too.

  infloop worker
  infloop worker --label gpu --label repo:web --capacity 2 --drain
  infloop worker --database postgresql://infloop@db.example.com/infloop
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_database, count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

    from infloop.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument(
        "--label",
        action="append",
        metavar="NAME",
        help="what it can do; may be repeated; default: INFLOOP_WORKER_LABELS",
    )
    parser.add_argument(
        "--capacity",
        type=count,
        metavar="N",
        help="how many runs at the same time; default: INFLOOP_MAX_CONCURRENT_RUNS, or 4",
    )
    parser.add_argument("--drain", action="store_true", help="when asked to stop, finish its runs")


def main(args: argparse.Namespace) -> int:
    from infloop import app

    given = {
        "database": args.database,
        "worker_labels": ",".join(args.label) if args.label else None,
        "max_concurrent_runs": args.capacity,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    return app.run_async(_work(app.settings().with_options(**changed), drain=args.drain))


async def _work(chosen: Settings, *, drain: bool) -> int:
    import asyncio

    from infloop import app
    from infloop.cli.interrupts import exit_at_once, on_interrupt
    from infloop.cli.recovery import recover

    stopping, impatient = asyncio.Event(), asyncio.Event()

    def again() -> None:
        if impatient.is_set() or not drain:
            exit_at_once()
        impatient.set()

    with on_interrupt(lambda _: stopping.set(), again):
        async with app.open_worker(chosen) as worker:
            await recover(worker.application)
            await worker.daemon.take_over()
            async with worker.daemon.running("the worker was stopped"):
                row = worker.service.instance.row
                labels = f", labels {' '.join(row.labels)}" if row.labels else ""
                print(f"infloop worker {row.id}: {row.capacity} runs at once{labels}", flush=True)
                await stopping.wait()
                if drain:
                    live = len(worker.service.live())
                    print(f"takes no more runs; waits for {live} of them", flush=True)
                    await _first(worker.daemon.drain(), impatient.wait())
    return 0


async def _first(*waits: Coroutine[object, object, object]) -> None:
    """Return when one of `waits` is over, and cancel the others."""
    import asyncio

    tasks = [asyncio.create_task(each) for each in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
