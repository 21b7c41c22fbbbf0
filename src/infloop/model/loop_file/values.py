"""Turns the values of a loop file into those of the model, and reports what cannot be one.

What a field takes follows from its type: where a text is expected, `8080` and `1.10` are texts as
they are written. The model validates the result; here only the loop file's own forms are checked.
"""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from infloop.errors import Problem
from infloop.model.loop_file.keys import model_keys
from infloop.model.loop_file.quantities import (
    DURATION_RULE,
    BadQuantity,
    read_duration,
    read_money,
)
from infloop.model.loop_file.steps import Spot, spot_of
from infloop.model.loop_file.tree import Fields, Items, Scalar, plain
from infloop.model.problems import short_repr
from infloop.model.schema import FileModel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from infloop.errors import Severity
    from infloop.model.loop_file.keys import Key
    from infloop.model.loop_file.tree import Tree
    from infloop.model.positions import Path
    from infloop.model.problems import Report
    from infloop.model.values import JsonObject, JsonValue


class UnusableFile(Exception):
    """A file that a loop file names cannot be used; the message says why."""


class Values:
    """Reads values, reports mistakes, and remembers where each value is.

    `read_file` returns the text of a file that the loop file names, or raises UnusableFile.
    """

    def __init__(self, report: Report, read_file: Callable[[str], str]) -> None:
        self.report = report
        self._read_file = read_file
        self.files: list[str] = []

    def error(self, spot: Spot, message: str, hint: str = "", severity: Severity = "error") -> None:
        """Report a mistake at its position."""
        line, column = spot.start.line, spot.start.column
        self.report.add(Problem(spot.words, message, hint, severity, line=line, column=column))

    def unknown_key(self, spot: Spot, key: str, known: Collection[str]) -> None:
        """Report a key that means nothing here."""
        self.error(spot, f"unknown key {short_repr(key)}", self.report.guess(key, known))

    def field(self, key: Key, tree: Tree, spot: Spot, spots: dict[Path, Spot], at: Path) -> Any:
        """Return the value of a field as JSON; None if it is empty or wrong."""
        spots[at] = spot
        if key.form == "plain":
            return self.typed(key.info.annotation, tree, spot, spots, at)
        if not isinstance(tree, Scalar):
            self.error(spot, f"expected a single value, got {short_repr(plain(tree))}")
            return None
        if tree.value is None:
            return None
        if key.form == "file":
            return self._file(tree, spot)
        is_number = isinstance(tree.value, int | float) and not isinstance(tree.value, bool)
        try:
            if key.form == "money":
                return read_money(tree.text)
            if is_number and tree.value != 0:
                self.error(spot, f"{tree.text} has no unit", DURATION_RULE)
                return None
            return 0 if is_number else read_duration(tree.text)
        except BadQuantity as error:
            self.error(spot, f"{short_repr(tree.text)} cannot be used here", str(error))
            return None

    def _file(self, tree: Scalar, spot: Spot) -> str | None:
        try:
            text = self._read_file(tree.text)
        except UnusableFile as error:
            self.error(spot, f"the file {short_repr(tree.text)} {error}")
            return None
        self.files.append(tree.text)
        return text

    def typed(
        self, annotation: Any, tree: Tree, spot: Spot, spots: dict[Path, Spot], at: Path
    ) -> JsonValue:
        """Return a value as a field of this type takes it."""
        spots[at] = spot
        choices = [_bare(one) for one in _alternatives(_bare(annotation))]
        if isinstance(tree, Scalar):
            is_text = any(one is str or get_origin(one) is Literal for one in choices)
            return tree.text if is_text and tree.value is not None else tree.value
        if isinstance(tree, Items):
            of = next((get_args(one)[0] for one in choices if get_origin(one) is tuple), Any)
            return [
                self.typed(of, item, spot_of(f"{spot.words}[{number}]", item), spots, (*at, number))
                for number, item in enumerate(tree.items)
            ]
        part = next((one for one in choices if _is_part(one)), None)
        if part is not None:
            return self.fields(tree, model_keys(part), spot, spots, at)
        of = next((get_args(one)[1] for one in choices if get_origin(one) is dict), Any)
        return {
            name: self.typed(
                of,
                member.value,
                spot_of(f"{spot.words}.{name}", member.value, member.key),
                spots,
                (*at, name),
            )
            for name, member in tree.members.items()
        }

    def fields(
        self,
        tree: Fields,
        keys: Mapping[str, Key],
        spot: Spot,
        spots: dict[Path, Spot],
        at: Path,
        other: Collection[str] = (),
    ) -> JsonObject:
        """Return the fields of a mapping as JSON; the keys in `other` are read elsewhere."""
        made: JsonObject = {}
        for name, member in tree.members.items():
            key = keys.get(name)
            here = spot_of(_inside(spot.words, name), member.value, member.key)
            if key is None:
                if name not in other:
                    where = Spot(spot.words or "file", member.key, member.key.offset)
                    self.unknown_key(where, name, [*keys, *other])
                continue
            if key.name in made:
                self.error(here, f"sets {key.name!r}, which another key sets already", "keep one")
                continue
            value = self.field(key, member.value, here, spots, (*at, key.name))
            if value is not None:
                made[key.name] = value
        return made


def _inside(words: str, name: str) -> str:
    if not words:
        return name
    return f"{words} {name}" if words.endswith(("'", '"', "…")) else f"{words}.{name}"


def _bare(annotation: Any) -> Any:
    """Return a type without what pydantic was told about it."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, UnionType):
        return get_args(annotation)
    return (annotation,)


def _is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, FileModel)
