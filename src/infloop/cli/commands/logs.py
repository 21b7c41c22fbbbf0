"""Print what a run's steps said, with when each began and how it ended.

  infloop logs last
  infloop logs 1f3a9c2e --step 'loop-1[3]'
  infloop logs 1f3a9c2e --follow

--follow goes on until the run has settled, whichever process drives it. --json prints every
event as one JSON object a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.run_names import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from infloop.model.events import Recorded
    from infloop.store.interfaces.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)
    parser.add_argument("--follow", action="store_true", help="go on until the run has settled")
    parser.add_argument(
        "--step", metavar="PATH", help="only this step, or what is inside this loop, round or call"
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def main(args: argparse.Namespace) -> int:
    """Print the run's events and output."""
    from infloop import app

    return app.run_async(_logs(args))


async def _logs(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.view.plain import JsonView, PlainView

    async with app.open_store(app.settings()) as store:
        row = await find_run(store.run_log, args.run)
        view = JsonView() if args.json else PlainView(started_at=row.started_at)
        async for batch in _batches(store, row.id, follow=args.follow):
            view.show([item for item in batch if concerns(item, args.step)])
        view.close()
    return 0


async def _batches(store: Store, run_id: str, *, follow: bool) -> AsyncIterator[list[Recorded]]:
    if follow:
        from infloop.runtime.runs.following import follow as follow_run

        async for batch in follow_run(store, run_id):
            yield batch
        return
    after = 0
    while batch := await store.run_log.events(run_id, after):
        yield batch
        after = batch[-1].seq


def concerns(item: Recorded, step: str | None) -> bool:
    """Say whether an event is about the step at this path or something inside it."""
    if not step:
        return True
    from infloop.model.events import step_path

    path = step_path(item.event)
    return path == step or path.startswith((f"{step}/", f"{step}[", f"{step}{{"))
