"""JSON values, and their form as text inside a template."""

from __future__ import annotations

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
    """Return a number without a needless fraction: `1.0` is `1`."""
    whole = float(value).is_integer() and abs(value) < 1e21
    return str(int(value)) if whole else repr(value)


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
            return compact_json(value)
