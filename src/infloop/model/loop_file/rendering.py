"""Turns the fields of the model into the keys and values of a loop file, the shortest ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.loop_file.keys import default_of, model_keys
from infloop.model.loop_file.quantities import duration_text, money_text
from infloop.model.schema import part_model

if TYPE_CHECKING:
    from infloop.model.loop_file.keys import Key
    from infloop.model.schema import FileModel
    from infloop.model.values import JsonObject, JsonValue


def render_fields(
    model: type[FileModel], config: JsonObject, without: tuple[str, ...] = ()
) -> JsonObject:
    """Return the fields that differ from their defaults in a loop file, by their keys there."""
    made: JsonObject = {}
    keys = model_keys(model, without)
    for name in dict.fromkeys(key.name for key in keys.values()):
        value = config.get(name)
        if value == default_of(model, name) and type(value) is type(default_of(model, name)):
            continue
        options = [key for key in keys.values() if key.name == name and key.form != "file"]
        key, written = _written(options, value)
        part = part_model(key.info.annotation)
        if part is not None and isinstance(written, dict):
            written = render_fields(part, written)
        made[key.key] = written
    return made


def _written(options: list[Key], value: JsonValue) -> tuple[Key, JsonValue]:
    """Return the preferred key of a field that can say the value, and what is written there."""
    for key in options:
        if key.form == "plain":
            return key, value
        text = duration_text(value) if key.form == "duration" else money_text(value)
        if text is not None:
            return key, 0 if text == "0" else text
    return options[-1], value
