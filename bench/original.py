"""Infinite Loop's figures, as they were recorded, and the row that shows one of ours beside it.

It cannot be installed everywhere, so it is not measured again: its figures are constants. They are
never scaled. Whoever prints them prints beside them how fast the machine is now
(`machine_speed`), as it was 12 ms when they were recorded.

A module whose benchmark belongs to this table has a function `rows`, which takes its rounds and
returns one `Row` for each line.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDED_ON = "2026-11-17"
RECORDED_WITH = "Infinite Loop on Bun 1.4"
RECORDED_HOW = "medians of three rounds, its children unconfined, nothing of a run durable"
RECORDED_SPEED_MS = 12.0
"""What `python -c pass` took on the machine and in the minutes of the recording."""

_STARTS = 9


@dataclass(frozen=True, slots=True)
class Work:
    """One line of the table: Infinite Loop's figure (None: it has no such thing), and our aim."""

    name: str
    unit: str
    original: float | None
    aim: float


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of ours, in the unit of the aim and of Infinite Loop's figure."""

    work: str
    figure: float
    unit: str
    aim: float
    original: float | None

    @property
    def met(self) -> bool:
        """Whether the figure reaches the aim: a rate is at least that, a time at most."""
        return self.figure >= self.aim if self.unit == "/s" else self.figure <= self.aim


PYTHON_STEP = Work("Python script step", "ms", 27, 27)
TYPESCRIPT_STEP = Work("TypeScript script step", "ms", 23, 23)
AGENT_STEP = Work("agent step, fake CLI, with snapshots", "ms", 25, 27.5)
COMMAND_CONDITION = Work("command condition", "ms", 1.4, 1.82)
CONTROL_NODES = Work("10,000 control nodes, CPU a node", "µs", 8, 15)
CONTROL_NODES_HEARD = Work("the same with one listener", "µs", 8, 25)
TOKEN_STREAM = Work("one token stream, one client, 20,000 deltas", "/s", 134_000, 134_000)
WEBHOOK_RUNS = Work("webhook to finished run, one run at a time", "/s", 336, 336)
WEBHOOK_RUNS_BY_FOUR = Work("webhook to finished run, four at a time", "/s", None, 600)
OVERLOAD = Work("runs under overload", "/s", 108, 300)
SERVE_START = Work("`infloop serve` to the first list of workflows", "s", 0.65, 0.6)
SHORT_COMMAND = Work("`infloop runs`, `show` of a new shell", "s", None, 0.12)
INSTANT_RUN = Work("`infloop run` of an instant workflow", "s", None, 0.2)
SEARCH = Work("`runs --search` among 10,000 runs", "s", None, 0.2)
GUARD_COMMAND = Work("a command at level guard", "ms", None, 4)
SANDBOX_COMMAND = Work("a command at level sandbox", "ms", None, 7)

ALL = (
    PYTHON_STEP,
    TYPESCRIPT_STEP,
    AGENT_STEP,
    COMMAND_CONDITION,
    CONTROL_NODES,
    CONTROL_NODES_HEARD,
    TOKEN_STREAM,
    WEBHOOK_RUNS,
    WEBHOOK_RUNS_BY_FOUR,
    OVERLOAD,
    SERVE_START,
    SHORT_COMMAND,
    INSTANT_RUN,
    SEARCH,
    GUARD_COMMAND,
    SANDBOX_COMMAND,
)
"""Every line of the table, in its order."""


def row(work: Work, values: Sequence[float], detail: str = "") -> Row:
    """Return the row of a work: the median of the rounds, in the unit of the work."""
    name = f"{work.name}, {detail}" if detail else work.name
    return Row(name, median(values), work.unit, work.aim, work.original)


def machine_speed() -> float:
    """Return how many milliseconds this machine takes for `python -c pass` now (a median)."""
    return 1e3 * median(_start_python() for _ in range(_STARTS))


def _start_python() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began
