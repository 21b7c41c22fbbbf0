"""JSON values, and their form as text inside a template."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    JsonValue: TypeAlias = (
        bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
    )
else:
    JsonValue = Any  # msgspec and pydantic do not support the recursive type
JsonObject: TypeAlias = dict[str, JsonValue]

_encoder = msgspec.json.Encoder()


def compact_json(value: object) -> str:
    """Return `value` as JSON on one line without spaces."""
    return _encoder.encode(value).decode()


def number_text(value: float) -> str:
    """Return a number as JavaScript prints it in JSON: `1.0` is `1`, and `1e-7` is no `1e-07`.

    A whole number has all its digits, however many.
    """
    if isinstance(value, int):
        return str(int(value))
    if not math.isfinite(value):
        return "null"
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    # The number is 0.DIGITS times ten to the power of `point`.
    point = len(digits) - len(fraction) + int(exponent or 0)
    sign, digits = "-" if value < 0 else "", digits.rstrip("0")
    if not -6 < point <= 21:
        more = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{more}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return f"{sign}{digits:0<{point}}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def json_text(value: JsonValue) -> str:
    """Return `value` as JSON on one line, with numbers as `number_text` prints them."""
    return compact_json(_with_printed_numbers(value))


def _with_printed_numbers(value: JsonValue) -> object:
    """Return a copy whose fractions are printed; iterative, because it may be deeply nested."""
    top: list[Any] = [value]
    copies: list[list[Any] | dict[str, Any]] = [top]

    def copied(item: JsonValue) -> object:
        if isinstance(item, float):
            return msgspec.Raw(number_text(item).encode())
        if isinstance(item, list | dict):
            copies.append(copy := item.copy())
            return copy
        return item

    while copies:
        copy = copies.pop()
        if isinstance(copy, list):
            copy[:] = map(copied, copy)
        else:
            copy.update({name: copied(item) for name, item in copy.items()})
    return top[0]


def as_text(value: JsonValue) -> str:
    """Return `value` as template text.

    Text is itself, null is empty, a list of plain values is joined by commas, and everything else
    is compact JSON.
    """
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(value)
        case list() if not any(isinstance(item, dict | list) for item in value):
            return ",".join(map(as_text, value))
        case _:
            return json_text(value)
