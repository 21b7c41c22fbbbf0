"""What a benchmark is: contenders that do the same work in turns, and targets for the outcome.

A contender is measured in a process of its own, so that nobody pays for another's imports, threads
or garbage. Contenders take turns within each round; a ratio is taken within a round and the median
of the rounds counts, so that a busy minute of the machine meets all of them alike.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias


@dataclass(slots=True)
class Sample:
    """One measurement: so much work, so much time. `cpu` counts all threads of the process.

    Where it matters, `slow` is how long all but the slowest hundredth took at most, in seconds, and
    `memory` how much there was at the end, in bytes.
    """

    count: int
    wall: float = 0.0
    cpu: float = 0.0
    slow: float = 0.0
    memory: float = 0.0


Figure: TypeAlias = Callable[[Sample], float]


def wall(sample: Sample) -> float:
    """Seconds per piece of work."""
    return sample.wall / sample.count


def cpu(sample: Sample) -> float:
    """Seconds of CPU per piece of work."""
    return sample.cpu / sample.count


def rate(sample: Sample) -> float:
    """Pieces of work per second."""
    return sample.count / sample.wall


def slow(sample: Sample) -> float:
    """Seconds within which all but the slowest hundredth was done."""
    return sample.slow


def memory(sample: Sample) -> float:
    """Bytes at the end."""
    return sample.memory


@contextmanager
def stopwatch(count: int) -> Iterator[Sample]:
    """Measure what happens inside as `count` pieces of work."""
    sample = Sample(count)
    began, used = time.perf_counter(), time.process_time()
    yield sample
    sample.wall = time.perf_counter() - began
    sample.cpu = time.process_time() - used


def children_cpu() -> float:
    """Return the CPU seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


Measure: TypeAlias = Callable[[int, Path], Sample]
"""Do work of the given size in the given folder, which the rounds of a benchmark share."""

Rounds: TypeAlias = dict[str, list[Sample]]
Values: TypeAlias = Callable[[Rounds], list[float]]


@dataclass(frozen=True, slots=True)
class Contender:
    """Someone who does the work.

    `most_rounds` spares us a slow starter; one that is `optional` may fail to start.
    """

    name: str
    measure: Measure
    most_rounds: int = 1000
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """What we want to reach. `values` returns one figure a round; their median counts."""

    what: str
    values: Values
    limit: float
    unit: str
    at_least: bool = False

    def met(self, median: float) -> bool:
        """Say whether a figure reaches the target."""
        return median >= self.limit if self.at_least else median <= self.limit


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A comparison. Where all do `alike`, ratios refer to the first contender."""

    title: str
    unit: str
    contenders: tuple[Contender, ...]
    targets: tuple[Target, ...] = ()
    size: int = 1
    quick_size: int = 1
    rounds: int = 5
    quick_rounds: int = 2
    alike: bool = True
    prepare: Callable[[int, Path], None] | None = field(default=None)


def each(name: str, figure: Figure, factor: float = 1.0) -> Values:
    """Return a target's values: one figure of one contender, `factor` times as large."""
    return lambda rounds: [figure(sample) * factor for sample in rounds[name]]


def ratio(above: str, below: str, figure: Figure) -> Values:
    """Return a target's values: one contender's figure divided by another's, round by round."""
    return lambda rounds: [
        figure(a) / figure(b) for a, b in zip(rounds[above], rounds[below], strict=False)
    ]
