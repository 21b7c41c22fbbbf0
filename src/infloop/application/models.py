"""The base of all results: named fields, camelCase in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from infloop.model.values import JsonObject


class Model(msgspec.Struct, kw_only=True, rename="camel"):
    """A result of a use case. A field that is `UNSET` is left out of its JSON."""


def to_json(model: msgspec.Struct) -> JsonObject:
    """Return a model as plain JSON values."""
    plain: JsonObject = msgspec.to_builtins(model)
    return plain
