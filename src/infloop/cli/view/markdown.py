"""Shows a page of the documentation on a terminal: headings, lists, tables, code.

Bold text is overstruck (a character, a backspace, the character again), as in manual pages: every
pager shows it as bold, and a terminal without a pager shows it as plain text.
"""

from __future__ import annotations

import re
import textwrap
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MIN_COLUMN = 10
GAP = "  "
# They stand around bold text until it is wrapped. No page contains them.
_ON, _OFF = "\x01", "\x02"
# Our own fixed patterns: linear, no nested repeats.
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")  # noqa: TID251
_BOLD = re.compile(r"\*\*([^*]+)\*\*|`([^`]+)`")  # noqa: TID251
_ITEM = re.compile(r"( *)(- |\d+\. )")  # noqa: TID251
_CELL_END = re.compile(r"(?<!\\)\|")  # noqa: TID251


def render(text: str, width: int) -> str:
    """Return a Markdown page for a terminal of this width."""
    return "\n".join(_blocks(text.split("\n"), width)) + "\n"


def _blocks(lines: list[str], width: int) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line, taken = lines[at], 1
        if line.startswith("```"):
            code = _while(lines, at + 1, lambda one: not one.startswith("```"))
            yield from (f"    {one}".rstrip() for one in code)
            taken = len(code) + 2
        elif line.startswith("#"):
            level, _, title = line.partition(" ")
            plain = _LINK.sub(r"\1", title).replace("`", "")
            yield _overstruck(f"{_ON}{plain.upper() if level == '#' else plain}{_OFF}")
        elif line.startswith("|"):
            table = _while(lines, at, lambda one: one.startswith("|"))
            yield from _table(table, width)
            taken = len(table)
        elif not line.strip():
            yield ""
        elif not line.startswith("<!--"):
            paragraph = [line, *_while(lines, at + 1, _continues)]
            yield from _paragraph(paragraph, width)
            taken = len(paragraph)
        at += taken


def _while(lines: Sequence[str], start: int, holds: Callable[[str], bool]) -> list[str]:
    return list(takewhile(holds, lines[start:]))


def _continues(line: str) -> bool:
    """Say whether a line belongs to the paragraph before it."""
    begins = line.startswith(("#", "|", "```", "<!--")) or _ITEM.match(line)
    return bool(line.strip()) and not begins


def _paragraph(lines: list[str], width: int) -> Iterator[str]:
    item = _ITEM.match(lines[0])
    indent = item[0] if item else ""
    text = " ".join(line.strip() for line in [lines[0][len(indent) :], *lines[1:]])
    hanging = " " * len(indent)
    yield from _wrapped(text, width, indent, hanging)


def _table(lines: list[str], width: int) -> Iterator[str]:
    """Yield a table in columns; a row that needs several lines is followed by an empty one."""
    rows = [_cells(line) for number, line in enumerate(lines) if number != 1]  # without the rule
    columns = max(map(len, rows))
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = _widths([max(len(row[number]) for row in rows) for number in range(columns)], width)
    for number, row in enumerate(rows):
        marked = [f"**{cell}**" if cell else "" for cell in row] if number == 0 else row
        cells = [list(_wrapped(cell, size)) for cell, size in zip(marked, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            yield GAP.join(map(_padded, parts, widths)).rstrip()
        if max(map(len, cells)) > 1:
            yield ""


def _cells(line: str) -> list[str]:
    parts = _CELL_END.split(line.strip())[1:-1]
    return [_LINK.sub(r"\1", part.strip()).replace("\\|", "|") for part in parts]


def _widths(wanted: list[int], width: int) -> list[int]:
    """Return the widths of columns: the widest give way until the table fits."""
    room = width - len(GAP) * (len(wanted) - 1)
    found = list(wanted)
    while sum(found) > room and max(found) > MIN_COLUMN:
        found[found.index(max(found))] -= 1
    return found


def _padded(text: str, width: int) -> str:
    shown = len(text) - 2 * text.count("\b")
    return text + " " * (width - shown)


def _wrapped(text: str, width: int, first: str = "", others: str = "") -> Iterator[str]:
    plain = _LINK.sub(r"\1", text)
    marked = _BOLD.sub(lambda found: f"{_ON}{found[1] or found[2]}{_OFF}", plain)
    lines = textwrap.wrap(
        marked,
        max(width, MIN_COLUMN),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
    )
    is_bold = False
    for line in lines or [""]:
        yield _overstruck(f"{_ON if is_bold else ''}{line}")
        is_bold = line.rfind(_ON) > line.rfind(_OFF) if _ON in line or _OFF in line else is_bold


def _overstruck(text: str) -> str:
    """Return a text with bold characters overstruck and without the marks."""
    made: list[str] = []
    is_bold = False
    for char in text:
        if char in (_ON, _OFF):
            is_bold = char == _ON
        else:
            made.append(f"{char}\b{char}" if is_bold and char != " " else char)
    return "".join(made)
