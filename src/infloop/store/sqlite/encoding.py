"""Values as JSON bytes, whatever text they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from infloop.model.values import JsonValue

_encode = msgspec.json.Encoder().encode


def to_json(value: object) -> bytes:
    """Return `value` as JSON.

    Half a surrogate pair is no text and has no JSON; a child can put one into a result, and
    the run must not fail of it: it becomes a question mark.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_mended(msgspec.to_builtins(value)))


def mended_text(text: str) -> str:
    """Return `text` as something a database takes."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _mended(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return mended_text(value)
        case list() | tuple():
            return [_mended(member) for member in value]
        case dict():
            return {mended_text(key): _mended(member) for key, member in value.items()}
        case _:
            return value
