"""Move an installation with its history to PostgreSQL.

Runs with their events, output and checkpoints, costs, questions, the queue and refused firings are
copied into an empty database, all or nothing, and counted. The file in the data directory is only
read and stays. No process may use it meanwhile. Workflows, providers, triggers, the audit log and
snapshots are files of their machine and stay where they are.

  infloop migrate --to postgresql://infloop@db.example.com/infloop

Then set INFLOOP_DATABASE to the same address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="source", choices=("sqlite",), default="sqlite", help="default: sqlite"
    )
    parser.add_argument(
        "--to", metavar="URL", required=True, help="an empty database: postgresql://user@host/name"
    )
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_move(args.to, as_json=args.json))


async def _move(target: str, *, as_json: bool) -> int:
    from infloop import app
    from infloop.application.caller import COMMAND_LINE
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line

    async with app.open_files(app.settings()) as application:
        moved = await application.moving.run(target, COMMAND_LINE)
    if as_json:
        print(json_line(to_json(moved)))
        return 0
    for each in moved.tables:
        print(f"{each.rows:>10}  {each.table}")
    print(f"moved to {moved.database}; set INFLOOP_DATABASE to the same address")
    return 0
