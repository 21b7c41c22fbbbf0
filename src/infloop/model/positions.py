"""Where the problems of a file are: their line and column.

A problem names its place in the workflow as text (`nodes[3] 'fix' config.prompt`). That text is
followed through the parsed file as far as it goes; what is missing in the file has the position of
the part that lacks it. Nothing is computed for a file without problems.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from json import JSONDecodeError, JSONDecoder
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec.structs import replace

from infloop.model.problems import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from infloop.errors import Problem
    from infloop.model.values import JsonValue

Path: TypeAlias = tuple[str | int, ...]
Range: TypeAlias = tuple[int, int]
_Wanted: TypeAlias = dict[str | int, "_Wanted"]

UNKNOWN_FIELD = "unknown field "

_decode = JSONDecoder().raw_decode
_SPACES = " \t\n\r"


class Source(Protocol):
    """The text that a workflow was read from."""

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems with their line and column; one that has them stays as it is."""


class JsonSource:
    """The text of a JSON file, and its content."""

    def __init__(self, text: str, content: JsonValue) -> None:
        self._text = text
        self._content = content

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        if all(problem.line for problem in problems):
            return list(problems)
        paths = [self._path(problem) for problem in problems]
        ranges = json_ranges(self._text, paths)
        lines = Lines(self._text)
        return [
            problem if problem.line else lines.located(problem, ranges.get(path, (0, 0)))
            for problem, path in zip(problems, paths, strict=True)
        ]

    def _path(self, problem: Problem) -> Path:
        """Return the part that a problem is about; an unknown field is that field."""
        path = path_of(problem.place, self._content)
        named = problem.message.removeprefix(UNKNOWN_FIELD)
        if named == problem.message:
            return path
        holder = self._content
        for key in path:
            holder = holder[key]  # type: ignore[index]
        keys = holder if isinstance(holder, dict) else ()
        return (*path, *(key for key in keys if short_repr(key) == named))[: len(path) + 1]


class Lines:
    """The beginnings of the lines of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begins = [0]
        while found := text.find("\n", self._begins[-1]) + 1:
            self._begins.append(found)

    def located(self, problem: Problem, where: Range, spelled: Sequence[str] = ()) -> Problem:
        """Return the problem with its position: the reference it is about, or else its part.

        `spelled` are the ways in which the text may write the reference that the message names.
        """
        index = where[0]
        if problem.message.startswith("{{"):
            named = spelled or (problem.message[2:].partition("}}")[0],)
            found = max(self._text.find(one, *where) for one in named)
            index = max(index, self._text.rfind("{{", index, found)) if found >= 0 else index
        line = bisect_right(self._begins, index)
        return replace(problem, line=line, column=index - self._begins[line - 1] + 1)


def at_the_top(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems of a file without content: they are at its beginning."""
    return [replace(one, line=one.line or 1, column=one.column or 1) for one in problems]


def path_of(place: str, content: JsonValue) -> Path:
    """Return the path in `content` of the place of a problem, as far as it exists."""
    path: list[str | int] = []
    here = content
    rest = "" if place == "file" else place
    while rest := rest.lstrip(" ."):
        found = _step(rest, here)
        if found is None:
            break
        key, rest = found
        if key is None:
            continue
        path.append(key)
        here = here[key]  # type: ignore[index]
    return tuple(path)


def _step(rest: str, here: JsonValue) -> tuple[str | int | None, str] | None:
    """Return the key that `rest` begins with, and what follows it; a name in quotes is no key."""
    if isinstance(here, list):
        number = rest[1:].partition("]")[0] if rest[0] == "[" else _word(rest)
        if number.isdecimal() and len(number) < 10 and int(number) < len(here):
            return int(number), rest[len(number) + (2 if rest[0] == "[" else 0) :]
        return None
    if not isinstance(here, dict):
        return None
    for end in _ends(rest):
        if rest[:end] in here:
            return rest[:end], rest[end:]
    for name in ("id", "name"):
        named = short_repr(here.get(name))
        if rest.startswith(named):
            return None, rest[len(named) :]
    if rest[0] in "'\"":
        quoted = next((key for key in here if rest.startswith(short_repr(key))), None)
        return (quoted, rest[len(short_repr(quoted)) :]) if quoted is not None else None
    return None


def _word(rest: str) -> str:
    return rest[: min(_ends(rest))]


def _ends(rest: str) -> list[int]:
    """Return where a key at the beginning of `rest` may end, the longest first: keys have dots."""
    found = [index for index, char in enumerate(rest) if char in " .[" and index]
    return [len(rest), *reversed(found)]


def json_ranges(text: str, paths: Iterable[Path]) -> dict[Path, Range]:
    """Return where the values at `paths` begin and end in a JSON text."""
    wanted: _Wanted = {}
    for path in paths:
        inner = wanted
        for key in path:
            inner = inner.setdefault(key, {})
    ranges: dict[Path, Range] = {}
    with suppress(IndexError, JSONDecodeError, RecursionError):  # not JSON: it has no parts
        _scan(text, _skip(text, 0), wanted, (), ranges)
    return ranges


def _scan(text: str, begin: int, wanted: _Wanted, path: Path, ranges: dict[Path, Range]) -> int:
    """Record the wanted parts of the value at `begin`; return where it ends."""
    if not wanted or text[begin] not in "{[":
        end = _decode(text, begin)[1]
    else:
        end = _members(text, begin, wanted, path, ranges)
    ranges[path] = (begin, end)
    return end


def _members(text: str, begin: int, wanted: _Wanted, path: Path, ranges: dict[Path, Range]) -> int:
    close = "}" if text[begin] == "{" else "]"
    at = _skip(text, begin + 1)
    number = 0
    while text[at] != close:
        key: str | int = number
        if close == "}":
            key, at = _decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        if key in wanted:
            at = _scan(text, at, wanted[key], (*path, key), ranges)
        else:
            at = _decode(text, at)[1]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        number += 1
    return at + 1


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACES:
        at += 1
    return at
