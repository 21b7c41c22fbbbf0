"""Text that is safe to print.

Names, prompts, errors and outputs come from files, children and models. Whatever they hold, no
control character of theirs reaches the terminal: it is shown as an escape (`\\x1b`, `\\u202e`). So
nothing can move the cursor, set the clipboard, forge a link or reverse a line.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.errors import InfloopError, Problem

INDENT = "  "


def safe(text: str) -> str:
    """Return `text` with everything visible but line ends and tabs, which stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def _visible(char: str) -> str:
    # Spaces of other widths are not "printable" to Python, and harmless; U+2028 and U+2029 are not.
    if char.isprintable() or char in "\n\t" or (char.isspace() and char in _SPACES):
        return char
    return char.encode("unicode_escape").decode("ascii")


_SPACES = frozenset("\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))


def is_text(text: str) -> bool:
    """Say whether this is text, and not bytes that only look like it to Python."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str, limit: int = 0) -> str:
    """Return `text` as one safe line, cut to `limit` characters when that is given."""
    if limit and len(text) > 2 * limit:
        text = text[: 2 * limit]  # nobody sees the rest, so nobody waits for it
    line = safe(text).replace("\n", "\\n").replace("\t", " ")
    return f"{line[: limit - 1]}…" if limit and len(line) > limit else line


def indented(text: str, prefix: str = INDENT) -> str:
    """Return `text`, safe, with `prefix` before each of its lines."""
    return "\n".join(prefix + line for line in safe(text).split("\n"))


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 step`, `3 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def json_line(value: object) -> str:
    """Return a JSON value on one line, in ASCII: it is as safe on a terminal as in a pipe."""
    return json.dumps(value, separators=(",", ":"))


def prepare_streams() -> None:
    """Let nothing that is printed fail for its encoding."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """Nobody reads our output any more: throw the rest away, and fail at nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def note(text: str) -> None:
    """Say something on stderr that is not the command's result."""
    print(safe(text), file=sys.stderr, flush=True)


def problem_lines(problems: tuple[Problem, ...] | list[Problem], prefix: str = "") -> list[str]:
    """Return one line per problem: its place, what is wrong, and what to do about it."""
    return [
        one_line(f"{prefix}{'warning: ' if problem.severity == 'warning' else ''}{problem}")
        for problem in problems
    ]


def complain(error: InfloopError) -> None:
    """Say on stderr what is wrong and what can be done."""
    from infloop.errors import WorkflowError

    note(f"infloop: {error}")
    if isinstance(error, WorkflowError):
        for line in problem_lines(error.problems, INDENT):
            note(line)
