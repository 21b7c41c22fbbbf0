"""Collects everything that is wrong with a file, as text that is safe to print.

A hostile file costs limited memory and time: a report holds a limited number of problems, and
compares a limited number of words to guess what was meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

MAX_PROBLEMS = 1_000
MAX_COMPARED = 40_000
MAX_TEXT_CHARS = 500


class Report:
    """The problems found so far, in the order they were found."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._omitted = 0
        self._compared = 0
        self.failed = False

    def error(self, place: str, message: str, hint: str = "", *, unsafe: bool = False) -> None:
        """Add a problem with which the file cannot be used."""
        self.failed = True
        self.add(Problem(place, message, hint, unsafe=unsafe))

    def warning(self, place: str, message: str, hint: str = "") -> None:
        """Add a problem with which the file can be used."""
        self.add(Problem(place, message, hint, "warning"))

    def not_negative(self, place: str, value: object) -> None:
        """Add an error for a number below zero."""
        if isinstance(value, int | float) and value < 0:
            self.error(place, f"{value} is negative", "use 0 or more")

    def add(self, problem: Problem) -> None:
        """Add a problem that was found elsewhere."""
        self.failed = self.failed or problem.severity == "error"
        if len(self._problems) < MAX_PROBLEMS:
            place, message, hint = map(_printable, (problem.place, problem.message, problem.hint))
            self._problems.append(replace(problem, place=place, message=message, hint=hint))
        else:
            self._omitted += 1

    def guess(self, word: str, known: Collection[str]) -> str:
        """Return a hint: the known word that was probably meant, or else all known words."""
        if len(self._problems) >= MAX_PROBLEMS:
            return ""  # the problem will be omitted
        if isinstance(known, set | frozenset):
            known = sorted(known)
        if self._compared + len(known) <= MAX_COMPARED:
            self._compared += len(known)
            from difflib import get_close_matches  # not above: most files have no mistake

            near = get_close_matches(word[:200], known, n=1)
            if near:
                return f"did you mean {near[0]!r}?"
        return f"known: {', '.join(known)}" if 0 < len(known) <= 20 else ""

    @property
    def problems(self) -> list[Problem]:
        """All problems; the last one says how many were omitted."""
        if not self._omitted:
            return list(self._problems)
        return [*self._problems, Problem("file", f"{self._omitted} more problems are not listed")]


def place_of(path: Sequence[str | int]) -> str:
    """Return a path into a file as text: `nodes[3].config`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


def short_repr(value: object) -> str:
    """Return the repr of a value for a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _printable(text: str) -> str:
    """Return a line without control characters: it may hold text from a file."""
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[:MAX_TEXT_CHARS]}…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
