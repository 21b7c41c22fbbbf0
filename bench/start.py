"""How long a command takes in a new shell.

The whole process is measured, from before it is spawned until it has exited: commands with nothing
to do, commands that look at a few runs, and `infloop run` of a workflow that only decides. The
floor is the same interpreter with nothing to run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import original
from application import line, node
from benchmark import Benchmark, Contender, Measure, Sample, Target, each, wall
from program import INFLOOP, measure_program

if TYPE_CHECKING:
    from benchmark import Rounds

RUNS_BEFORE = 5
INSTANT = "instant.json"


def prepare(size: int, folder: Path) -> None:
    """Make a workflow that ends immediately, and a few runs of it."""
    branch = node("fast", "branch", lhs="a", op="==", rhs="a")
    (folder / INSTANT).write_text(json.dumps({**line([branch], "true"), "inputs": []}))
    for _ in range(RUNS_BEFORE):
        measure_program([INFLOOP, "run", INSTANT], folder)


def command(*arguments: str) -> Measure:
    """Return how a command is measured."""
    return lambda _, folder: measure_program([INFLOOP, *arguments], folder)


def measure_python(size: int, folder: Path) -> Sample:
    """Start Python and stop it again."""
    return measure_program([sys.executable, "-c", "pass"], folder)


VERSION, HELP = "infloop --version", "infloop --help"
RUNS, SHOW, RUN = "infloop runs", "infloop show", "infloop run"

BENCHMARK = Benchmark(
    title="A command in a new shell",
    unit="command",
    contenders=(
        Contender(VERSION, command("--version")),
        Contender(HELP, command("--help")),
        Contender(RUNS, command("runs")),
        Contender(SHOW, command("show", "last")),
        Contender(RUN, command("run", INSTANT)),
        Contender("python -c pass", measure_python),
    ),
    targets=(
        Target(VERSION, each(VERSION, wall, 1e3), 150, "ms"),
        Target(HELP, each(HELP, wall, 1e3), 150, "ms"),
    ),
    rounds=20,
    quick_rounds=5,
    prepare=prepare,
)


def rows(rounds: Rounds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that are measured here."""
    return [
        original.row(original.SHORT_COMMAND, each(RUNS, wall)(rounds), f"`{RUNS}`"),
        original.row(original.SHORT_COMMAND, each(SHOW, wall)(rounds), f"`{SHOW}`"),
        original.row(original.INSTANT_RUN, each(RUN, wall)(rounds)),
    ]
