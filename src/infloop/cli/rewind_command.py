"""Begin a new run from a step of an earlier one.

The new run has everything before that step in common with the earlier run, which stays as it is.
STEP is a path as `infloop show` prints it, or a round of a loop.

  infloop rewind 1f3a9c2e --to agent-1
  infloop rewind last --to 'loop-1[3]'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.naming import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)
    parser.add_argument("--to", metavar="STEP", required=True, help="the step to begin at")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def main(args: argparse.Namespace) -> int:
    """Fork the run and see the new one through."""
    from infloop import app

    return app.run_async(_rewind(args))


async def _rewind(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.watching import Begun, begun, see_through

    async with app.open_service(app.settings()) as service:

        async def begin() -> list[Begun]:
            row = await find_run(service.journal, args.run)
            seq = await service.find_step(row.id, args.to)
            run_id = await service.rewind(row.id, args.to)
            return [begun(service, run_id, seq - 1)]

        return await see_through(service, begin, as_json=args.json)
