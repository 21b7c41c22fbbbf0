"""What `make bench` prints: one page to read, and every figure for those who want to know more."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TypeAlias

import growth
import original
import report
from benchmark import Benchmark, Rounds

Found: TypeAlias = dict[str, Rounds]
"""The samples of each benchmark, by the name of its module."""

Speeds: TypeAlias = dict[str, float]
"""What `python -c pass` took around each benchmark, in milliseconds."""

Table: TypeAlias = Callable[[report.Row, Sequence[report.Row]], str]

RATIOS: report.Row = ("ratios within this run", *report.TARGETS[1:])
MISSED: report.Row = ("missed", *report.TARGETS[1:])
TIMES = "times"


def load(name: str) -> Benchmark:
    """Return the benchmark of a module in this folder."""
    benchmark: Benchmark = importlib.import_module(name).BENCHMARK
    return benchmark


def details(found: Found, table: Table, *, judged: bool) -> str:
    """Return every figure, and every aim."""
    figures = [row for name in found for row in report.figure_rows(load(name), found[name])]
    targets = report.without_repeats(_targets(found, judged=judged))
    return f"{table(report.FIGURES, figures)}\n\n{table(report.TARGETS, targets)}"


def summary(found: Found, speeds: Speeds, table: Table, *, judged: bool) -> str:
    """Return the page."""
    targets = _targets(found, judged=judged)
    ratios = [row for row in targets if row[2].endswith(TIMES)]
    grown = [
        row
        for name, module in _modules(found)
        for row in growth.table(getattr(module, "GROWTH", ()), found[name])
    ]
    missed = [row for row in targets if row[-1] == "missed"]
    met = sum(row[-1] == "met" for row in targets)
    rows = original_rows(found, speeds)
    parts = [
        f"{original.RECORDED_WITH}, recorded on {original.RECORDED_ON}: {original.RECORDED_HOW}."
        if rows
        else "",
        table(original.HEAD, [*original.table(rows)]) if rows else "",
        table(RATIOS, report.without_repeats(ratios)) if ratios else "",
        table(growth.HEAD, grown) if grown else "",
        table(MISSED, report.without_repeats(missed)) if missed else "",
        f"{met} aims met, {len(missed)} missed." if judged else "Aims are not judged.",
    ]
    return "\n\n".join(part for part in parts if part)


def original_rows(found: Found, speeds: Speeds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that were measured."""
    rows: list[original.Row] = []
    for name, module in _modules(found):
        try:
            measured = module.rows(found[name])
        except (AttributeError, KeyError):  # none of its figures belong to it, or it could not run
            continue
        rows += [replace(row, speed_ms=speeds[name]) for row in measured]
    return rows


def _modules(found: Found) -> Iterator[tuple[str, ModuleType]]:
    for name in found:
        yield name, importlib.import_module(name)


def _targets(found: Found, *, judged: bool) -> list[report.Row]:
    """Return a row for each aim, each with the title of its benchmark."""
    rows: list[report.Row] = []
    for name in found:
        benchmark = load(name)
        always = benchmark.quick_size == benchmark.size
        rows += report.target_rows(benchmark, found[name], judged=judged or always)
    return rows
