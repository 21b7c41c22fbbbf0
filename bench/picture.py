"""Draws the table of Infinite Loop as an SVG file: one bar for each row.

A bar says how many times better than its aim a figure is. The scale is logarithmic, so that twice
as good and half as good are equally far from the line of the aim.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import original

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, ROW, TOP = 960, 26, 64
NAMES, FIGURES = 400, 760
"""Where names end and figures begin, from the left; bars are between them."""
MOST = 8.0
"""How many times better than its aim a figure is at the right end, or worse at the left."""

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1c1c1a }
  .small { font-size: 11px; fill: #6b6b66 }
  .met { fill: #2f6f4f } .missed { fill: #b4472e } line { stroke: #1c1c1a; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8e8e3 } .small { fill: #a0a09a } line { stroke: #e8e8e3 }
    .met { fill: #6fbf94 } .missed { fill: #e58a70 }
  }
"""


def draw(rows: Sequence[original.Row]) -> str:
    """Return the picture."""
    ordered = [row for work in original.ALL for row in rows if row.work == work]
    height = TOP + ROW * len(ordered) + 12
    middle = (NAMES + FIGURES) / 2
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>infloop beside Infinite Loop</title>",
            f"<style>{STYLE}</style>",
            text(12, 22, "How much better than its aim each figure is", ""),
            text(12, 42, f"{original.RECORDED_WITH}, recorded on {original.RECORDED_ON}", "small"),
            text(middle, 22, "aim", "", "middle"),
            text(NAMES + 4, 42, f"{MOST:.0f} times worse", "small"),
            text(FIGURES - 4, 42, f"{MOST:.0f} times better", "small", "end"),
            text(FIGURES + 12, 22, "ours · Infinite Loop's", "small"),
            *(bar(row, TOP + ROW * number) for number, row in enumerate(ordered)),
            f'<line x1="{middle}" x2="{middle}" y1="{TOP - 12}" y2="{height - 8}"/>',
            "</svg>\n",
        )
    )


def bar(row: original.Row, y: int) -> str:
    """Return one row: its name, its bar and its figures."""
    better = row.better(row.work.aim)
    middle, half = (NAMES + FIGURES) / 2, (FIGURES - NAMES) / 2
    length = half * max(-1.0, min(1.0, math.log(better) / math.log(MOST)))
    kind = "met" if better >= 1 else "missed"
    ours = row.work.text(row.at_recorded_speed)
    other = "" if row.work.original is None else f" · {row.work.text(row.work.original)}"
    place = f'x="{min(middle, middle + length):.1f}" y="{y + 2}"'
    parts = (
        text(NAMES - 12, y + 13, row.name.replace("`", ""), "", "end"),
        f'<rect {place} width="{abs(length):.1f}" height="14" class="{kind}"/>',
        text(FIGURES + 12, y + 13, f"{ours}{other}", ""),
    )
    return "\n".join(parts)


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    """Return a line of text."""
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} class="{kind}">{escape(words)}</text>'
