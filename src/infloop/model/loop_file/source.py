"""Where a problem of a compiled workflow is in the loop file, in the words of that file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.model.loop_file.forms import CHECKS
from infloop.model.loop_file.keys import kind_of, step_words
from infloop.model.positions import Lines, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.errors import Problem
    from infloop.model.loop_file.compiling import Compiled
    from infloop.model.loop_file.steps import Spot
    from infloop.model.positions import Path
    from infloop.model.values import JsonValue

# Our own fixed patterns: no nested repeats. What is quoted belongs to the author and stays.
_QUOTED = re.compile(r"('[^']*'|\"[^\"]*\"|\{\{[^}]*\}\}|`[^`]*`)")  # noqa: TID251
_WORDS = tuple(
    (re.compile(rf"\b{word}\b"), said)  # noqa: TID251
    for word, said in (
        ("node executions", "steps"),
        ("nodes into its children", "steps under `steps`"),
        ("nodes", "steps"),
        ("node", "step"),
        ("no edge leads", "no step leads"),
        ("this edge", "this jump"),
        ("another edge", "another jump"),
        ("edges", "jumps"),
        ("edge", "jump"),
        ("of type", "of kind"),
        ("sidenote", "note"),
        ("branch instead", "`if` instead"),
        ("connect it, or remove it", "let a step before it lead to it, or remove it"),
    )
)


class LoopSource:
    """The text of a loop file, and what it was compiled to."""

    def __init__(self, text: str, compiled: Compiled) -> None:
        self._text = text
        self._compiled = compiled
        # The names of the conditions of `until`, as the file writes them.
        self._written = {check: f"{loop}.check" for loop, check in compiled.checks.items()}

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        lines = Lines(self._text) if not all(one.line for one in problems) else None
        found = [
            self._located(one, lines) if lines is not None and not one.line else one
            for one in problems
        ]
        return sorted(found, key=lambda problem: (problem.line or 0, problem.column or 0))

    def _located(self, problem: Problem, lines: Lines) -> Problem:
        path = path_of(problem.place, self._compiled.content)
        known = path
        while known not in self._compiled.spots:
            known = known[:-1]
        spot = self._compiled.spots[known]
        reference = problem.message[2:].partition("}}")[0]
        spelled = [reference, *self._spellings(reference)]
        placed = lines.located(problem, (spot.start.offset, spot.end), spelled)
        return replace(
            placed,
            place=self._place(problem.place, spot, known),
            message=self._said(problem.message),
            hint=self._said(problem.hint),
        )

    def _spellings(self, reference: str) -> list[str]:
        head, _, rest = reference.partition(".")
        written = self._written.get(head)
        return [f"{written}.{rest}" if rest else written] if written is not None else []

    def _place(self, place: str, spot: Spot, known: Path) -> str:
        """Return the part in the file's words; a missing field has the key it would have."""
        field = place.rpartition(" ")[2]
        if not field.startswith("config.") or "config" in known:
            return spot.words
        node = _at(self._compiled.content, known)
        if not isinstance(node, dict):
            return spot.words
        return f"{spot.words} {_key_of(str(node.get('type')), field.split('.')[1:])}"

    def _said(self, text: str) -> str:
        parts = _QUOTED.split(text)
        for index, part in enumerate(parts):
            if index % 2 == 0:
                for pattern, said in _WORDS:
                    part = pattern.sub(said, part)  # noqa: PLW2901
                parts[index] = part
                continue
            inner = part.strip("'\"{}")
            head, dot, rest = inner.partition(".")
            if head in self._written:
                parts[index] = part.replace(inner, f"{self._written[head]}{dot}{rest}")
        return "".join(parts)


def _key_of(node_type: str, names: list[str]) -> str:
    words = step_words(kind_of(node_type))
    if words.main is not None and words.main.name == names[0]:
        return words.kind
    if names[0] in words.model.variants:
        return next((key for key, (kind, _) in CHECKS.items() if kind == names[0]), names[0])
    return next((key for key, one in words.keys.items() if one.name == names[0]), names[0])


def _at(content: JsonValue, path: Path) -> JsonValue:
    for key in path:
        content = content[key]  # type: ignore[index]
    return content
