"""Reads what a workflow file in Python has built: the same tree that a loop file is.

The file ran in a sandbox and sent JSON (see `infloop.catalog.harness`). That is untrusted: it has
the limits of a loop file, and becomes a workflow only by the same compiler and the same check.

A part is `[kind, content, at]`. The kinds are `s`, a single value; `l`, a list of parts; and `m`, a
mapping of parts. `at` is where it begins and ends in the file: two lines and columns from 1; null
means where the part around it is.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from infloop.errors import Problem
from infloop.model.loop_file.keys import kinds, step_words
from infloop.model.loop_file.reading import parse_tree
from infloop.model.loop_file.source import LoopSource
from infloop.model.loop_file.tree import (
    MAX_DEPTH,
    Fields,
    Items,
    Mark,
    Member,
    Scalar,
    is_storable,
)
from infloop.model.parsing import Parsed
from infloop.model.positions import at_the_top
from infloop.model.problems import Report, short_repr
from infloop.model.reading import HIGHEST, LOWEST, MAX_VALUES
from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infloop.model.loop_file.compiling import Compiled
    from infloop.model.loop_file.tree import Tree
    from infloop.model.values import JsonValue

# Our own fixed patterns: no nested repeats. What is quoted belongs to the author and stays.
_QUOTED = re.compile(r"('[^']*'|\"[^\"]*\"|\{\{[^}]*\}\}|`[^`]*`)")  # noqa: TID251
_CAMEL = re.compile(r"(?<![\w.])[a-z]+(?:[A-Z][a-z]*)+\b", re.ASCII)  # noqa: TID251
_CAPITAL = re.compile(r"[A-Z]", re.ASCII)  # noqa: TID251
_MAX_FRAMES = 10


class RaisedError(msgspec.Struct, forbid_unknown_fields=True):
    """An exception of the file; `frames` are its calls outside the file, the innermost first."""

    message: str
    at: tuple[int, int] = (1, 1)
    frames: list[str] = []


class BuildResult(msgspec.Struct, forbid_unknown_fields=True):
    """What was built: the names of all workflows, and the tree of the chosen or only one."""

    names: list[str] = []
    tree: Any = None
    error: RaisedError | None = None


class _Refused(Exception):
    """A part cannot be in a workflow; its position, and why."""

    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.problem = Problem("file", message, line=mark.line, column=mark.column)


def parse_built(
    data: bytes,
    text: str,
    file: str,
    chosen: str,
    workflow_id: str,
    read_file: Callable[[str], str],
) -> Parsed:
    """Return the workflow that the file named `file`, with this text, has built.

    `chosen` names one of several. `read_file` returns the text of a file that it names, or raises
    `UnusableFile`.
    """
    report = Report()
    try:
        result = msgspec.json.decode(data, type=BuildResult)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        report.error("file", "sent something else than a workflow")
        return Parsed(None, tuple(at_the_top(report.problems)))
    if result.error is not None:
        report.add(_raised(result.error))
    elif result.tree is None:
        report.add(_not_one(result.names, file, chosen, report))
    if report.failed:
        return Parsed(None, tuple(at_the_top(report.problems)))
    reader = _Reader(text)
    try:
        tree = reader.tree(result.tree, reader.whole, 0)
    except _Refused as refused:
        report.add(refused.problem)
        return Parsed(None, tuple(report.problems))
    if not isinstance(tree, Fields):
        report.error("file", "sent something else than a workflow")
        return Parsed(None, tuple(at_the_top(report.problems)))
    name = workflow_id if len(result.names) <= 1 else f"{workflow_id}-{chosen}"
    return parse_tree(tree, report, name, read_file, partial(PythonSource, text))


def _raised(error: RaisedError) -> Problem:
    shown = error.frames[:_MAX_FRAMES]
    more = f" and {len(error.frames) - len(shown)} more" if len(error.frames) > len(shown) else ""
    hint = f"raised in {', called from '.join(shown)}{more}" if shown else ""
    line, column = (max(1, number) for number in error.at)
    return Problem("file", error.message, hint, line=line, column=column)


def _not_one(names: Sequence[str], file: str, chosen: str, report: Report) -> Problem:
    if not names:
        return Problem("file", "makes no workflow", "assign one: flow = workflow(…)")
    if chosen:
        return Problem("file", f"has no workflow {short_repr(chosen)}", report.guess(chosen, names))
    listed = ", ".join(names[:20])
    hint = f"name one of them: {file}:{names[0]}"
    return Problem("file", f"makes {len(names)} workflows: {listed}", hint)


class _Reader:
    """Makes a tree of what was sent, within the limits of a loop file."""

    def __init__(self, text: str) -> None:
        self._begins = [0]
        while found := text.find("\n", self._begins[-1]) + 1:
            self._begins.append(found)
        self._length = len(text)
        self._values = 0
        self.whole = Mark(1, 1, 0), self._length

    def tree(self, part: Any, around: tuple[Mark, int], depth: int) -> Tree:
        match part:
            case ["s" | "l" | "m" as kind, content, at]:
                start, end = self._range(at, around)
            case _:
                raise _Refused(around[0], "sent something else than a workflow")
        if depth > MAX_DEPTH:
            raise _Refused(start, f"nested deeper than {MAX_DEPTH} levels")
        self._values += 1
        if self._values > MAX_VALUES:
            raise _Refused(start, f"holds more than {MAX_VALUES} values")
        if kind == "l" and isinstance(content, list):
            items = [self.tree(item, (start, end), depth + 1) for item in content]
            return Items(items, start, end)
        if kind == "m" and isinstance(content, dict):
            members: dict[str, Member] = {}
            for key, value in content.items():
                _check_text(key, start)
                inner = self.tree(value, (start, end), depth + 1)
                members[key] = Member(inner.start, inner)
            return Fields(members, start, end)
        if kind != "s" or isinstance(content, dict | list):
            raise _Refused(start, "sent something else than a workflow")
        return Scalar(_text_of(content, start), content, start, end)

    def _range(self, at: Any, around: tuple[Mark, int]) -> tuple[Mark, int]:
        match at:
            case [int(line), int(column), int(last), int(end)]:
                begin = self._offset(line, column)
                mark = Mark(max(1, line), max(1, column), begin)
                return mark, max(begin, self._offset(last, end))
            case _:
                return around

    def _offset(self, line: int, column: int) -> int:
        begin = self._begins[min(max(line, 1), len(self._begins)) - 1]
        return min(begin + max(column, 1) - 1, self._length)


def _text_of(value: JsonValue, mark: Mark) -> str:
    """Return what a value is where a text is expected: as a loop file would write it."""
    if isinstance(value, str):
        _check_text(value, mark)
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise _Refused(mark, "not a finite number")
    if isinstance(value, int) and not LOWEST <= value <= HIGHEST:
        raise _Refused(mark, "a number of more than 64 bits; write it as text")
    return as_text(value)


def _check_text(text: str, mark: Mark) -> None:
    if "\0" in text:
        raise _Refused(mark, "holds a NUL character; remove it")
    if not is_storable(text):
        raise _Refused(mark, "holds half of a surrogate pair; remove it")


class PythonSource(LoopSource):
    """The text of a Python file, and what it was compiled to: keys are called as its arguments."""

    def __init__(self, text: str, compiled: Compiled) -> None:
        super().__init__(text, compiled)
        self._arguments = {key for kind in kinds() for key in _keys(kind)}

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        return [
            replace(
                one,
                place=self._as_arguments(one.place),
                message=self._as_arguments(one.message),
                hint=self._as_arguments(one.hint),
            )
            for one in super().located(problems)
        ]

    def _as_arguments(self, text: str) -> str:
        parts = _QUOTED.split(text)
        parts[::2] = [_CAMEL.sub(lambda found: self._argument(found[0]), one) for one in parts[::2]]
        return "".join(parts)

    def _argument(self, key: str) -> str:
        if key not in self._arguments:
            return key
        return _CAPITAL.sub(lambda found: f"_{found[0].lower()}", key)


def _keys(kind: str) -> set[str]:
    words = step_words(kind)
    return {*words.keys, *words.handles}
