"""Runs a command in the background: it goes on after the terminal closes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    OnStarted = Callable[[str], None]


def add_detach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return when the run has started; it goes on after the terminal closes",
    )


def run_in_background(
    main: Callable[[argparse.Namespace, OnStarted], int], args: argparse.Namespace
) -> int:
    """Run a command that starts a run, and return when the run has started."""
    import secrets

    from infloop import app
    from infloop.cli import call
    from infloop.cli.view.advice import short

    log = app.settings().data_dir / "detached" / f"{secrets.token_hex(8)}.log"

    def command(started: OnStarted) -> int:
        return call(lambda given: main(given, started), args)

    try:
        run_id = app.run_detached(command, log)
    except app.DetachedStartError as error:
        sys.stderr.write(error.said)
        return error.code
    name = short(run_id)
    print(f"run {name} goes on in the background")
    print(f"  infloop attach {name}  shows it live")
    print(f"  infloop cancel {name}  stops it")
    return 0
