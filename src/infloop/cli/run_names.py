"""Which run is meant: its id, the beginning of its id, or `last`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound, UsageError

if TYPE_CHECKING:
    import argparse

    from infloop.store.interfaces.run_log import RunLog, RunRow

SHORTEST = 4
HELP = "a run's id, its first characters (at least 4), or `last`"


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Let the command take a run."""
    parser.add_argument("run", metavar="RUN", help=HELP)


async def find_run(run_log: RunLog, name: str) -> RunRow:
    """Return the one run that `name` stands for, or raise UsageError that says what to type."""
    if name == "last":
        newest = await run_log.runs(limit=1)
        if not newest:
            raise UsageError("there are no runs yet; `infloop run FILE` makes one")
        return newest[0]
    try:
        return await run_log.run(name)
    except NotFound:
        return await _find_by_beginning(run_log, name)


async def _find_by_beginning(run_log: RunLog, name: str) -> RunRow:
    if len(name) < SHORTEST:
        raise UsageError(
            f"{name!r} is too short for a run's id; give at least {SHORTEST} characters"
        )
    found = await run_log.runs_with_prefix(name)
    if not found:
        raise UsageError(f"there is no run {name!r}; `infloop runs` lists them")
    if len(found) > 1:
        few = ", ".join(row.id for row in found[:4])
        raise UsageError(
            f"{name!r} may be one of several runs: {few}{', …' if len(found) > 4 else ''}; "
            "give more of its id"
        )
    return found[0]
