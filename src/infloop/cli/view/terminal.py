"""Text that is safe to print.

Names, prompts, errors and outputs come from files, children and models. None of their control
characters reaches the terminal: they are shown as escapes (`\\x1b`, `\\u202e`). So no text can move
the cursor, set the clipboard, forge a link or reverse a line. Marks that combine with a character
are limited, and so are characters that nobody can see: no text can paint over other lines or hide
in one.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from infloop.application.problems import ShownProblem
    from infloop.errors import InfloopError, Problem

INDENT = "  "
MAX_MARKS = 8
"""How many combining marks one character may have; more than any language writes."""


def safe(text: str) -> str:
    """Return `text` with control characters as escapes; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(text.replace("\r\n", "\n")))


def _visible(text: str) -> Iterator[str]:
    marks, hidden = MAX_MARKS, 1  # a mark without a character before it is shown as an escape
    for char in text:
        if char < _FIRST_MARK:
            marks = hidden = 0
            if char in "\n\t ":
                marks, hidden = MAX_MARKS, 1
            yield char if char.isprintable() or char in "\n\t\u00a0" else _escape(char)
        elif char in _HIDDEN_MARKS:
            yield char if hidden == 0 else _escape(char)
            hidden += 1
        elif unicodedata.category(char)[0] == "M":
            yield char if marks < MAX_MARKS else _escape(char)
            marks += 1
        else:
            marks = hidden = 0
            # Python calls other spaces not printable. They are harmless, except U+2028 and U+2029.
            shown = (char.isprintable() and char not in _FILLERS) or char in _SPACES
            yield char if shown else _escape(char)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


_FIRST_MARK = "\u0300"
_SPACES = frozenset("\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
_HIDDEN_MARKS = frozenset(
    "\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""Marks without a shape of their own, such as variation selectors; a character may have one."""


def is_text(text: str) -> bool:
    """Say whether this is valid text, and not bytes that Python decoded with surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str, limit: int = 0) -> str:
    """Return `text` as one safe line, cut to `limit` characters when that is given."""
    if limit and len(text) > 2 * limit:
        text = text[: 2 * limit]  # the rest is cut anyway
    line = safe(text).replace("\n", "\\n").replace("\t", " ")
    return f"{line[: limit - 1]}…" if limit and len(line) > limit else line


def end_of(line: str, columns: int) -> str:
    """Return as much of the end of a line as fits into these columns of a terminal."""
    from rich.cells import cell_len

    if len(line) <= columns and cell_len(line) <= columns:
        return line
    kept = line[-max(columns, 1) :]
    while kept and cell_len(kept) >= columns:
        kept = kept[1:]
    return f"…{kept}"


def indented(text: str, prefix: str = INDENT) -> str:
    """Return `text`, safe, with `prefix` before each of its lines."""
    return "\n".join(prefix + line for line in safe(text).split("\n"))


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 step`, `3 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def json_line(value: object) -> str:
    """Return a JSON value on one line in ASCII, which is safe on a terminal."""
    return json.dumps(value, separators=(",", ":"))


def prepare_streams() -> None:
    """Print what the encoding of a stream cannot represent as escapes, without an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """Discard further output, because its reader has gone away."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def terminal_columns() -> int:
    """Return the width of the terminal that stdout is; 0 if it is none that can erase a row."""
    if not sys.stdout.isatty():
        return 0
    from rich.console import Console

    console = Console(force_terminal=True)
    return 0 if console.is_dumb_terminal else console.width


def note(text: str) -> None:
    """Print a message on stderr that is not part of the command's result."""
    print(safe(text), file=sys.stderr, flush=True)


def problem_lines(problems: Iterable[Problem | ShownProblem], prefix: str = "") -> list[str]:
    """Return one line per problem: its place, what is wrong, and what to do about it."""
    return [one_line(prefix + _problem(each)) for each in problems]


def _problem(problem: Problem | ShownProblem) -> str:
    from infloop.errors import Problem

    text = Problem(problem.place, problem.message, problem.hint)
    position = problem.position if isinstance(problem, Problem) else ""
    said = f"{'warning: ' if problem.severity == 'warning' else ''}{text}"
    return f"{position}: {said}" if position else said


def complain(error: InfloopError) -> None:
    """Print an error on stderr, with every problem that it has."""
    from infloop.errors import InvalidFile, WorkflowError

    note(f"infloop: {error}")
    if isinstance(error, WorkflowError):
        problems = error.problems
    elif isinstance(error, InvalidFile):
        problems = error.problems[1:]  # the message is the first one
    else:
        return
    for line in problem_lines(problems, INDENT):
        note(line)
