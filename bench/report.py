"""Turns samples into tables, for a terminal and for a Markdown file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from benchmark import cpu, rate, wall

if TYPE_CHECKING:
    from benchmark import Benchmark, Rounds, Sample, Target

Row = tuple[str, ...]

FIGURES: Row = ("what", "who", "wall", "CPU", "a second", "min to max", "times first")
TARGETS: Row = ("what", "which", "target", "figure", "min to max", "outcome")


def figure_rows(benchmark: Benchmark, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for each contender; times and rates are medians, per piece of work."""
    first = rounds.get(benchmark.contenders[0].name) or []
    for number, contender in enumerate(benchmark.contenders):
        title = f"{benchmark.title} (per {benchmark.unit})" if number == 0 else ""
        samples = rounds.get(contender.name)
        if not samples:
            yield (title, contender.name, "could not run", "", "", "", "")
            continue
        walls = [wall(sample) for sample in samples]
        yield (
            title,
            contender.name,
            duration(median(walls)),
            duration(median(cpu(sample) for sample in samples)),
            number_text(median(rate(sample) for sample in samples)),
            f"{duration(min(walls))} to {duration(max(walls))}",
            _times_first(first, samples) if benchmark.alike else "",
        )


def _times_first(first: Sequence[Sample], samples: Sequence[Sample]) -> str:
    """Return how many times as long as the first contender it took, in the same rounds."""
    pairs = zip(samples, first, strict=False)
    ratios = [wall(sample) / wall(other) for sample, other in pairs]
    return number_text(median(ratios)) if ratios else ""


def target_rows(benchmark: Benchmark, rounds: Rounds, *, judged: bool) -> Iterator[Row]:
    """Yield a row for each target; the figures of less work than it speaks of are not judged."""
    for target in benchmark.targets:
        yield (benchmark.title, target.what, *_outcome(target, rounds, judged=judged))


def _outcome(target: Target, rounds: Rounds, *, judged: bool) -> Row:
    limit = f"{'≥' if target.at_least else '≤'} {number_text(target.limit)} {target.unit}"
    try:
        values = target.values(rounds)
    except KeyError:
        values = []
    if not values:
        return (limit, "", "", "not measured")
    middle = median(values)
    return (
        limit,
        f"{number_text(middle)} {target.unit}",
        f"{number_text(min(values))} to {number_text(max(values))}",
        ("met" if target.met(middle) else "missed") if judged else "not judged",
    )


def duration(seconds: float) -> str:
    """Return a time with three digits and a fitting unit."""
    if seconds >= 1:
        return f"{number_text(seconds)} s"
    if seconds >= 1e-3:
        return f"{number_text(seconds * 1e3)} ms"
    return f"{number_text(seconds * 1e6)} µs"


def number_text(value: float) -> str:
    """Return a number with about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def without_repeats(rows: Sequence[Row]) -> list[Row]:
    """Leave a title out where the row above has the same."""
    above = ("", *(row[0] for row in rows))
    return [
        ("" if row[0] == title else row[0], *row[1:])
        for row, title in zip(rows, above, strict=False)
    ]


def text_table(head: Row, rows: Sequence[Row]) -> str:
    """Return a table with columns as wide as they need to be."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    rule = tuple("─" * width for width in widths)
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, rule, *rows)
    )


def markdown_table(head: Row, rows: Sequence[Row]) -> str:
    """Return the same as Markdown."""
    rule = tuple("---" for _ in head)
    return "\n".join(
        f"| {' | '.join(cell.strip().replace('|', '/') for cell in row)} |"
        for row in (head, rule, *rows)
    )
