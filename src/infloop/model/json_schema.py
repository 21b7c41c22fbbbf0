"""The JSON Schema of a record, or of a choice between records."""

from __future__ import annotations

import inspect
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from infloop.model.records import Record, Widget
from infloop.model.type_checks import ChosenBy

if TYPE_CHECKING:
    from infloop.model.records import FieldInfo

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
}


def json_schema(shape: Any) -> dict[str, Any]:
    """Return the JSON Schema of a record class or another type of a field."""
    parts: dict[str, Any] = {}
    made = _record(shape, parts) if _is_record(shape) else _type(shape, parts)
    return {**made, "$defs": dict(sorted(parts.items()))} if parts else made


def _is_record(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, Record)


def _record(model: type[Record], parts: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "object",
        "title": model.model_title or model.__name__,
        "properties": {
            info.alias: _field(info, parts)
            for name, info in model.model_fields.items()
            if name not in model.unpublished_fields
        },
        "additionalProperties": False,
    }
    if model.__doc__:
        made["description"] = inspect.cleandoc(model.__doc__)
    if model.required_keys:
        made["required"] = list(model.required_keys)
    return made


def _field(info: FieldInfo, parts: dict[str, Any]) -> dict[str, Any]:
    made = _type(info.hint, parts)
    made["title"] = info.title or info.name.replace("_", " ").title()
    made["description"] = info.description
    if info.factory is None:
        default = info.default
        made["default"] = default.to_json() if isinstance(default, Record) else default
        if isinstance(default, tuple):
            made["default"] = list(default)
    marks = {"template": info.template, "file": info.file, "writeOnly": info.secret}
    made |= {name: True for name, marked in marks.items() if marked}
    if info.widget:
        made["widget"] = info.widget
    limits = {"minimum": info.low, "maximum": info.high}
    return made | {name: limit for name, limit in limits.items() if limit is not None}


def _type(annotation: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return {}
    if annotation in _PLAIN:
        return {**_PLAIN[annotation]}
    if _is_record(annotation):
        name = annotation.__name__
        if name not in parts:
            parts[name] = {}  # before its fields, which may refer to it
            parts[name] = _record(annotation, parts)
        return {"$ref": f"#/$defs/{name}"}
    if origin is Annotated:
        marks = annotation.__metadata__
        by = next((mark for mark in marks if isinstance(mark, ChosenBy)), None)
        made = _choice(inner[0], by, parts) if by else _type(inner[0], parts)
        widget = next((mark for mark in marks if isinstance(mark, Widget)), None)
        return {**made, "widget": widget.name} if widget else made
    if origin in (Union, UnionType):
        return {"anyOf": [_type(one, parts) for one in inner]}
    if origin is Literal:
        same = {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
        return {"type": "string", **same}
    if origin is tuple:
        return {"type": "array", "items": _type(inner[0], parts)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(inner[1], parts) or True}
    return {"type": "string", "format": annotation.__name__.lower()}  # made of a text


def _choice(union: Any, by: ChosenBy, parts: dict[str, Any]) -> dict[str, Any]:
    refs = {
        model.model_fields[by.key].default: _type(model, parts)["$ref"] for model in get_args(union)
    }
    return {
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": by.key, "mapping": refs},
    }
