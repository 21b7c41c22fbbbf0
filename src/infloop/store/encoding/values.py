"""Values as JSON bytes, whatever text they contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from infloop.model.values import JsonValue

_encode = msgspec.json.Encoder().encode


def to_json(value: object) -> bytes:
    """Return `value` as JSON.

    A lone surrogate, which a child can put into a result, cannot be encoded. It becomes a question
    mark, so that it does not fail the run.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_replaced(msgspec.to_builtins(value)))


def replace_surrogates(text: str) -> str:
    """Return `text` with question marks for lone surrogates, which no database stores."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _replaced(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return replace_surrogates(value)
        case list() | tuple():
            return [_replaced(member) for member in value]
        case dict():
            return {replace_surrogates(key): _replaced(member) for key, member in value.items()}
        case _:
            return value
