"""How long the command line takes to answer when there is nothing to do.

The whole process is measured, from before it is spawned until it has exited. The floor is the same
interpreter with nothing to run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmark import Benchmark, Contender, Sample, Target, each, wall
from program import INFLOOP, measure_program


def measure_version(size: int, folder: Path) -> Sample:
    """Ask for the version."""
    return measure_program([INFLOOP, "--version"], folder)


def measure_help(size: int, folder: Path) -> Sample:
    """Ask for help."""
    return measure_program([INFLOOP, "--help"], folder)


def measure_python(size: int, folder: Path) -> Sample:
    """Start Python and stop it again."""
    return measure_program([sys.executable, "-c", "pass"], folder)


VERSION, HELP = "infloop --version", "infloop --help"

BENCHMARK = Benchmark(
    title="Start of the command line",
    unit="start",
    contenders=(
        Contender(VERSION, measure_version),
        Contender(HELP, measure_help),
        Contender("python -c pass", measure_python),
    ),
    targets=(
        Target("infloop --version", each(VERSION, wall, 1e3), 150, "ms"),
        Target("infloop --help", each(HELP, wall, 1e3), 150, "ms"),
    ),
    rounds=20,
    quick_rounds=5,
)
