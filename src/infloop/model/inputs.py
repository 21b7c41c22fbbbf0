"""The declared inputs of a workflow, and the values that a run was given for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.model.values import JsonObject, JsonValue


class InputError(ValueError):
    """A value is missing or has the wrong type; holds the input, the reason and the types."""

    def __init__(self, field: str, reason: str, expected: str = "", got: str = "") -> None:
        self.field, self.reason, self.expected, self.got = field, reason, expected, got
        if reason == "required":
            text = f"input {field!r} is required; pass --input {field}=…"
        else:
            text = f"input {field!r} must be a {expected}, not {got}"
        super().__init__(text)


def resolve_inputs(specs: Sequence[Mapping[str, JsonValue]], supplied: JsonObject) -> JsonObject:
    """Return the declared inputs: the supplied values, or else the defaults.

    Keys that are not declared are left out. Raises InputError for the first wrong value.
    """
    resolved: JsonObject = {}
    for spec in specs:
        name = str(spec["name"])
        if name in supplied:
            resolved[name] = _fit(name, str(spec.get("type", "string")), supplied[name])
        elif spec.get("default") is not None:
            resolved[name] = _fit(name, str(spec.get("type", "string")), spec["default"])
        else:
            raise InputError(name, "required")
    return resolved


def _fit(name: str, kind: str, value: JsonValue) -> JsonValue:
    """Return `value` as the declared type; numbers and booleans may be given as text."""
    if kind == "number":
        number = _number(value)
        if number is None:
            raise InputError(name, "type", "number", _kind_of(value))
        return number
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise InputError(name, "type", "boolean", _kind_of(value))
    if not isinstance(value, str):
        raise InputError(name, "type", "string", _kind_of(value))
    return value


def _number(value: JsonValue) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value if math.isfinite(value) else None
    if not isinstance(value, str) or not value.strip() or "_" in value:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _kind_of(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
