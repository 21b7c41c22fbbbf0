"""Text that is safe to print.

Names, prompts, errors and outputs come from files, children and models. None of their control
characters reaches the terminal: they are shown as escapes (`\\x1b`, `\\u202e`). So no text can move
the cursor, set the clipboard, forge a link or reverse a line.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.application.problems import ShownProblem
    from infloop.errors import InfloopError, Problem

INDENT = "  "


def safe(text: str) -> str:
    """Return `text` with control characters as escapes; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def _visible(char: str) -> str:
    # Python calls other spaces not printable. They are harmless, except U+2028 and U+2029.
    if char.isprintable() or char in "\n\t" or (char.isspace() and char in _SPACES):
        return char
    return char.encode("unicode_escape").decode("ascii")


_SPACES = frozenset("\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))


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


def note(text: str) -> None:
    """Print a message on stderr that is not part of the command's result."""
    print(safe(text), file=sys.stderr, flush=True)


def problem_lines(problems: Iterable[Problem | ShownProblem], prefix: str = "") -> list[str]:
    """Return one line per problem: its place, what is wrong, and what to do about it."""
    return [one_line(prefix + _problem(each)) for each in problems]


def _problem(problem: Problem | ShownProblem) -> str:
    from infloop.errors import Problem

    text = Problem(problem.place, problem.message, problem.hint)
    return f"{'warning: ' if problem.severity == 'warning' else ''}{text}"


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
