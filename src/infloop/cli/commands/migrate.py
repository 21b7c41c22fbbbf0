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

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="source", choices=("sqlite",), default="sqlite", help="default: sqlite"
    )
    parser.add_argument(
        "--to", metavar="URL", required=True, help="an empty database: postgresql://user@host/name"
    )


def main(args: argparse.Namespace) -> int:
    from infloop import app

    moved = app.run_async(app.move_store(app.settings(), args.to))
    for table, rows in moved:
        print(f"{rows:>10}  {table}")
    print("moved; set INFLOOP_DATABASE to the same address")
    return 0
