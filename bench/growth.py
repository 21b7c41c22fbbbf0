"""How a cost grows with the size of what it is about: the same figure at several sizes.

A module whose benchmark measures growth has a tuple `GROWTH`. A cost that is flat stays the same at
each size; where the work itself grows, as with the files of a worktree, the figure is per file.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from report import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmark import Figure, Rounds

HEAD = ("cost", "sizes", "figures", "largest to smallest")


@dataclass(frozen=True, slots=True)
class Growth:
    """A figure of several contenders, which differ by their size."""

    what: str
    unit: str
    contenders: dict[int, str]
    figure: Figure
    per_piece: bool = False

    def cells(self, rounds: Rounds) -> tuple[str, ...]:
        """Return the line of the table."""
        found = {
            size: median(self.figure(sample) for sample in rounds[name])
            / (size if self.per_piece else 1)
            for size, name in self.contenders.items()
            if name in rounds
        }
        if len(found) < 2:
            return (self.what, "", "", "not measured")
        times = found[max(found)] / found[min(found)]
        return (
            self.what,
            f"{' · '.join(f'{size:,}' for size in found)} {self.unit}",
            " · ".join(duration(value) for value in found.values()),
            f"{times:.2g} times",
        )


def table(growth: tuple[Growth, ...], rounds: Rounds) -> Iterator[tuple[str, ...]]:
    """Yield a line for each cost."""
    for each in growth:
        yield each.cells(rounds)
