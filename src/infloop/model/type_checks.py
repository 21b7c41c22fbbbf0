"""Checks JSON values against type annotations, and reports every mistake.

`check_for` makes a function of an annotation once; `records` keeps these functions. A type has one
meaning: `int` and `bool` are not mixed up, and texts are not converted.

    Before(rule)     changes a value before its type is checked
    After(rule)      checks or changes a value of the right type; it raises ValueError for a bad one
    ChosenBy(key)    of several classes, the value of this key selects one

Other marks in an `Annotated` are for their own readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

import msgspec

Location: TypeAlias = tuple[str | int, ...]


class Mistake(msgspec.Struct):
    """What is wrong with a value.

    kind     type      `expected` says what it should have been
             choice    it is none of `choices`
             rule      `expected` is the message of the rule
             unknown   a key that its object does not have
    given    the value
    loc      its place
    """

    kind: Literal["type", "choice", "rule", "unknown"]
    given: Any
    expected: str = ""
    choices: tuple[str, ...] = ()
    loc: Location = ()


Check: TypeAlias = Callable[[Any, list[Mistake]], Any]
"""Returns the checked value; or WRONG, after adding one or more mistakes."""

WRONG: Any = object()


class Before(NamedTuple):
    """A change of a value before its type is checked."""

    rule: Callable[[Any], Any]


class After(NamedTuple):
    """A rule for a value of the right type. It raises ValueError, or returns the value."""

    rule: Callable[[Any], Any]


class ChosenBy(NamedTuple):
    """The key that selects one of several classes: its default in each of them is their name."""

    key: str


class ValidationError(ValueError):
    """A value does not fit."""

    def __init__(self, name: str, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes
        first = mistakes[0]
        place = ".".join(map(str, first.loc)) or "the value"
        what = first.expected or first.kind
        super().__init__(f"{len(mistakes)} mistakes in {name}; {place}: {what}")


def shift(mistakes: list[Mistake], since: int, key: str | int) -> None:
    """Put `key` before the places of the mistakes from number `since` on."""
    for mistake in mistakes[since:]:
        mistake.loc = (key, *mistake.loc)


def check_for(annotation: Any, check_of_class: Callable[[type], Check]) -> Check:
    """Return the check for an annotation; `check_of_class` makes those of other classes."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return _anything
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin is Annotated:
        return _annotated(inner[0], annotation.__metadata__, check_of_class)
    if origin in (Union, UnionType):
        return _union(inner, check_of_class)
    if origin is Literal:
        return _choice(inner)
    if origin is tuple:
        return _list(check_for(inner[0], check_of_class))
    if origin is dict:
        return _object(check_for(inner[1], check_of_class))
    return check_of_class(annotation)


def in_range(check: Check, low: float | None, high: float | None) -> Check:
    """Return a check of a number that also accepts only finite ones between `low` and `high`."""
    if low is None and high is None:
        return check
    least = -math.inf if low is None else low
    most = math.inf if high is None else high
    expected = f"{least} or more" if high is None else f"{least} to {most}"

    def ranged(value: Any, mistakes: list[Mistake]) -> Any:
        made = check(value, mistakes)
        if made is WRONG or (least <= made <= most and math.isfinite(made)):
            return made
        mistakes.append(Mistake("rule", value, expected))
        return WRONG

    return ranged


def union_members(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union without None, or the type itself."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(one for one in get_args(annotation) if one is not type(None))
    return (annotation,)


# -- plain values ------------------------------------------------------------------------------


def _anything(value: Any, mistakes: list[Mistake]) -> Any:
    return value


def _text(value: Any, mistakes: list[Mistake]) -> Any:
    return value if isinstance(value, str) else _refuse(value, mistakes, "text")


def _flag(value: Any, mistakes: list[Mistake]) -> Any:
    return value if isinstance(value, bool) else _refuse(value, mistakes, "true or false")


def _whole(value: Any, mistakes: list[Mistake]) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _refuse(value, mistakes, "a whole number")


def _number(value: Any, mistakes: list[Mistake]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _refuse(value, mistakes, "a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _refuse(value: Any, mistakes: list[Mistake], expected: str) -> Any:
    mistakes.append(Mistake("type", value, expected))
    return WRONG


_PLAIN: dict[Any, Check] = {str: _text, bool: _flag, int: _whole, float: _number}
_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


# -- compositions ------------------------------------------------------------------------------


def _annotated(
    inner: Any, metadata: tuple[Any, ...], check_of_class: Callable[[type], Check]
) -> Check:
    by = next((mark for mark in metadata if isinstance(mark, ChosenBy)), None)
    if by is not None:
        return _chosen(by.key, {_name(by, one): check_of_class(one) for one in get_args(inner)})
    check = check_for(inner, check_of_class)
    before = [mark.rule for mark in metadata if isinstance(mark, Before)]
    after = [mark.rule for mark in metadata if isinstance(mark, After)]
    if not before and not after:
        return check

    def with_rules(value: Any, mistakes: list[Mistake]) -> Any:
        made = value
        for rule in before:
            made = rule(made)
        made = check(made, mistakes)
        if made is WRONG:
            return WRONG
        try:
            for rule in after:
                made = rule(made)
        except ValueError as error:
            mistakes.append(Mistake("rule", value, str(error)))
            return WRONG
        return made

    return with_rules


def _name(by: ChosenBy, model: Any) -> str:
    return str(model.model_fields[by.key].default)


def _chosen(key: str, checks: dict[str, Check]) -> Check:
    def chosen(value: Any, mistakes: list[Mistake]) -> Any:
        named = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
        check = checks.get(named) if isinstance(named, str) else None
        if check is None:
            mistakes.append(Mistake("choice", named, choices=tuple(checks), loc=(key,)))
            return WRONG
        return check(value, mistakes)

    return chosen


def _union(members: tuple[Any, ...], check_of_class: Callable[[type], Check]) -> Check:
    nullable = type(None) in members
    types = [one for one in members if one is not type(None)]
    checks = [check_for(one, check_of_class) for one in types]
    if len(checks) == 1:
        only = checks[0]
        return lambda value, mistakes: None if value is None else only(value, mistakes)
    expected = ", or ".join(_WORDS[_bare(one)] for one in types)

    def any_of(value: Any, mistakes: list[Mistake]) -> Any:
        if value is None and nullable:
            return None
        failed: list[Mistake] = []
        for check in checks:
            made = check(value, failed)
            if made is not WRONG:
                return made
        broken = next((one for one in failed if one.kind == "rule"), None)
        mistakes.append(broken or Mistake("type", value, expected))
        return WRONG

    return any_of


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _choice(choices: tuple[str, ...]) -> Check:
    def choice(value: Any, mistakes: list[Mistake]) -> Any:
        if isinstance(value, str) and value in choices:
            return value
        mistakes.append(Mistake("choice", value, choices=choices))
        return WRONG

    return choice


def _list(check: Check) -> Check:
    def items(value: Any, mistakes: list[Mistake]) -> Any:
        if not isinstance(value, list | tuple):
            return _refuse(value, mistakes, "a list")
        since = before = len(mistakes)
        made = []
        for index, item in enumerate(value):
            checked = check(item, mistakes)
            if checked is WRONG:
                shift(mistakes, since, index)
                since = len(mistakes)
            made.append(checked)
        return tuple(made) if since == before else WRONG

    return items


def _object(check: Check) -> Check:
    def members(value: Any, mistakes: list[Mistake]) -> Any:
        if not isinstance(value, dict):
            return _refuse(value, mistakes, "an object")
        since = before = len(mistakes)
        made = {}
        for key, item in value.items():
            checked = check(item, mistakes) if isinstance(key, str) else _text(key, mistakes)
            if checked is WRONG:
                shift(mistakes, since, str(key))
                since = len(mistakes)
            made[key] = checked
        return made if since == before else WRONG

    return members
