"""Infinite Loop's figures, as they were recorded, and the table that shows ours beside them.

It cannot be installed everywhere, so it is not measured again: its figures are constants. Machines
differ, and so does one machine from hour to hour. So the CPU time in which Python starts is taken
around each benchmark (`machine_speed`); it was 12 ms when they were recorded. A time of ours is
divided by how much slower the machine is than it was then, a rate is multiplied by it, and the
outcome is of that figure. The figure as it was measured stands beside it. The load of a machine
does not change CPU times much: what others do to our figures is not made up for.

A module whose benchmark belongs to this table has a function `rows`, which takes its rounds and
returns one `Row` for each line.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmark import children_cpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RECORDED_ON = "2026-11-17"
RECORDED_WITH = "Infinite Loop on Bun 1.4"
RECORDED_HOW = "medians of three rounds, its children unconfined, nothing of a run durable"
RECORDED_SPEED_MS = 12.0
"""What `python -c pass` took on the machine and in the minutes of the recording."""

HEAD = ("work", "Infinite Loop", "infloop here", "at its speed", "times as fast", "aim", "outcome")

NONE = "none"

_STARTS = 9


@dataclass(frozen=True, slots=True)
class Work:
    """One line of the table: Infinite Loop's figure (None: it has no such thing), and our aim."""

    name: str
    unit: str
    original: float | None
    aim: float

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit == "/s"

    def text(self, value: float) -> str:
        """Return a figure of this work with its unit."""
        number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        return f"{number}{'' if self.is_rate else ' '}{self.unit}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of ours, in the unit of its work, and how fast the machine was then."""

    work: Work
    figure: float
    detail: str = ""
    speed_ms: float = RECORDED_SPEED_MS

    @property
    def name(self) -> str:
        """What was done, and with what."""
        return f"{self.work.name}, {self.detail}" if self.detail else self.work.name

    @property
    def at_recorded_speed(self) -> float:
        """What the figure would be on the machine of the recording."""
        slower = self.speed_ms / RECORDED_SPEED_MS
        return self.figure * slower if self.work.is_rate else self.figure / slower

    def better(self, than: float) -> float:
        """Return how many times better the figure is than another one; below 1, it is worse."""
        ours = self.at_recorded_speed
        return ours / than if self.work.is_rate else than / ours

    def cells(self) -> tuple[str, ...]:
        """Return the line of the table."""
        work = self.work
        return (
            self.name,
            NONE if work.original is None else work.text(work.original),
            work.text(self.figure),
            work.text(self.at_recorded_speed),
            NONE if work.original is None else f"{self.better(work.original):.2f}",
            work.text(work.aim),
            "met" if self.better(work.aim) >= 1 else "missed",
        )


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
SHORT_COMMAND = Work("a command of a new shell", "s", None, 0.12)
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
    return Row(work, median(values), detail)


def table(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the table in their order, also of what was not measured."""
    for work in ALL:
        measured = [row for row in rows if row.work == work]
        for row in measured:
            yield row.cells()
        if not measured:
            original = NONE if work.original is None else work.text(work.original)
            yield (work.name, original, "", "", "", work.text(work.aim), "not measured")


def machine_speed() -> float:
    """Return how many milliseconds of CPU time `python -c pass` takes now (a median)."""
    return 1e3 * median(_start_python() for _ in range(_STARTS))


def _start_python() -> float:
    before = children_cpu()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return children_cpu() - before
