"""Arguments that several commands take."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RUN_HELP = "a run's id, its first characters (at least 4), or `last`"
MAX_COUNT = 100_000


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)


def add_json(
    parser: argparse.ArgumentParser, what: str = "one JSON object", *, inherit: bool = False
) -> None:
    """Add --json; with `inherit` its default is the value that the parent command has."""
    default = argparse.SUPPRESS if inherit else False
    parser.add_argument("--json", action="store_true", default=default, help=f"print {what}")


def add_left_out(parser: argparse.ArgumentParser) -> None:
    """Add what `diff` and `apply` have in common: files that are otherwise left out."""
    parser.add_argument(
        "--all",
        action="store_true",
        help="also files that only a check or a command changed, or that git ignores",
    )
    parser.add_argument(
        "--include",
        metavar="NAME",
        action="append",
        default=[],
        help="also those of these files: a path, a directory or a pattern; can be repeated",
    )


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        metavar="URL",
        help="postgresql://user@host/name; default: INFLOOP_DATABASE, or a file (SQLite)",
    )


def count(text: str) -> int:
    """Parse a number of results."""
    if not text.isdecimal() or not 0 < int(text[:9]) <= MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_COUNT}")
    return int(text)


def amount(text: str) -> float:
    """Parse an amount of money."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount in US dollars; use 2.50")
    return found


def assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse the `NAME=VALUE` texts of a repeated option."""
    from infloop.errors import UsageError

    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
        found[name] = value
    return found


def read_secret(what: str) -> str:
    """Read a secret from the terminal without showing it, or from standard input."""
    import getpass
    import sys

    from infloop.errors import UsageError

    given = getpass.getpass(f"{what}: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not given.strip():
        raise UsageError(f"no {what} was given; type it, or pass it on standard input")
    return given.strip()
