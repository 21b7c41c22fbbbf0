"""The JSON Schema of loop files, for editors.

It is made from the same words as the reader uses. A step is chosen by the key that names its kind,
so that an editor reports a mistake at the key and not at the whole loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infloop.model.json_schema import json_schema
from infloop.model.loop_file.forms import CHECKS, OPERATORS
from infloop.model.loop_file.keys import StepWords, default_of, kinds, model_keys, step_words
from infloop.model.loop_file.keys import config_model as config_of_kind
from infloop.model.nodes import CheckCommand, Rubric
from infloop.model.schema import FileModel, part_model, tidy_schema
from infloop.model.workflow import InputSpec, Workflow

if TYPE_CHECKING:
    from infloop.model.loop_file.keys import Key

_DURATION = {
    "type": ["string", "integer", "null"],
    "pattern": r"^(0|([0-9.]+(ms|[dhms]))+)$",
    "minimum": 0,
    "maximum": 0,
    "examples": ["90s", "10m", "1h30m"],
}
_MONEY = {
    "type": ["string", "number", "null"],
    "pattern": r"^\$?[0-9.]+$",
    "minimum": 0,
    "examples": ["$5", 0.5],
}
_TEXT = {"type": ["string", "number", "boolean"]}
_STEPS = {"$ref": "#/$defs/steps"}
_ID = {"type": ["string", "number"], "description": "The step's name; references use it."}


def loop_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a loop file."""
    header = model_keys(Workflow, ("nodes", "edges", "inputs", "$schema"))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:infloop:schema:loop",
        "title": "Loop file",
        "description": "A workflow, in the order in which its steps run.",
        "type": "object",
        "properties": {
            **_properties(Workflow, header),
            "inputs": _inputs(),
            "steps": _STEPS,
            "layout": {"type": "object", "description": "What the console draws."},
            "unknown": {
                "type": "object",
                "description": "What a JSON file had for other programs; it has no effect.",
            },
        },
        "required": ["steps"],
        "additionalProperties": False,
        "$defs": {
            "steps": {"type": ["array", "null"], "items": {"$ref": "#/$defs/step"}},
            "step": _step(),
            "follow": {
                "description": "The id of a step, steps of its own, or null: nothing follows.",
                "type": ["string", "number", "array", "null"],
                "items": {"$ref": "#/$defs/step"},
            },
            "check": _check(),
            **{f"step-{kind}": _kind(step_words(kind)) for kind in kinds()},
        },
    }


def _step() -> dict[str, Any]:
    """Return the choice between the kinds; each is decided by its key alone."""
    return {
        "type": "object",
        "oneOf": [{"required": [kind]} for kind in kinds()],
        "allOf": [
            {"if": {"required": [kind]}, "then": {"$ref": f"#/$defs/step-{kind}"}}
            for kind in kinds()
        ],
    }


def _kind(words: StepWords) -> dict[str, Any]:
    model = words.model
    properties: dict[str, Any] = {words.kind: _main(words)}
    if not words.main_is_id:
        properties["id"] = _ID
    properties["label"] = {**_TEXT, "description": "What the console shows instead of the id."}
    if words.node_type not in ("condition", "branch"):
        properties |= _properties(config_of_kind(model), words.keys)
    if model.holds_nodes and model.opens == "round":
        properties |= {"until": {"$ref": "#/$defs/check"}, "steps": _STEPS}
    elif model.holds_nodes:
        properties["branches"] = {
            "description": "Steps that run at the same time, by the name of their branch.",
            "type": "object",
            "additionalProperties": _STEPS,
        }
    follow = {"$ref": "#/$defs/follow"}
    properties |= dict.fromkeys(words.handles, follow)
    if len(model.flow_handles({})) == 1:
        properties["next"] = follow
    return {
        "title": model.model_title,
        "description": str(model.__doc__),
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _main(words: StepWords) -> dict[str, Any]:
    if words.node_type == "condition":
        return {"$ref": "#/$defs/check"}
    if words.node_type == "branch":
        return {
            "description": 'A comparison: "{{step.output}} == text".',
            "type": ["string", "object"],
            "properties": dict.fromkeys(("left", *OPERATORS), _TEXT),
            "required": ["left"],
            "additionalProperties": False,
        }
    if words.main_is_id:
        return {**_ID, "type": ["string", "number", "null"]}
    if words.main is None:
        return {"type": "null"}
    return _or_null(_field(config_of_kind(words.model), words.main))


def _check() -> dict[str, Any]:
    """Return the forms of `check` and `until`."""
    parts: dict[str, Any] = {
        **_properties(CheckCommand, model_keys(CheckCommand, ("cmd",))),
        **_properties(Rubric, model_keys(Rubric, ("rubric",))),
    }
    mains = {
        "command": "A shell line; it succeeds with exit code 0.",
        "contains": "A text to look for.",
        "matches": "A regular expression (RE2) to look for.",
        "judge": "What a model says whether it holds.",
    }
    assert set(mains) == set(CHECKS)
    forms = {key: {**_TEXT, "description": text} for key, text in mains.items()}
    extra = {"in": {**_TEXT, "description": "The text that is checked."}, "id": _ID, "label": _TEXT}
    return {
        "description": "A shell line, or one of command, contains, matches and judge.",
        "type": ["string", "number", "boolean", "object"],
        "if": {"type": "object", "required": ["kind"]},
        "else": {
            "properties": {**forms, **parts, **extra},
            "additionalProperties": False,
        },
    }


def _inputs() -> dict[str, Any]:
    spec = model_keys(InputSpec, ("name",))
    return {
        "description": "The inputs of a run: a default, or type, default and description.",
        "type": ["object", "null"],
        "additionalProperties": {
            "type": ["string", "number", "boolean", "object", "null"],
            "properties": _properties(InputSpec, spec),
            "additionalProperties": False,
        },
    }


def _properties(model: type[FileModel], keys: Any) -> dict[str, Any]:
    return {name: _field(model, key) for name, key in keys.items()}


def _field(model: type[FileModel], key: Key) -> dict[str, Any]:
    """Return the schema of one key."""
    made: dict[str, Any] = {"title": key.info.title, "description": key.info.description}
    if key.form == "file":
        return {**made, "type": "string", "description": "The path of a file that holds the text."}
    if key.form == "duration":
        return {**made, **_DURATION}
    if key.form == "money":
        return {**made, **_MONEY}
    default = default_of(model, key.name)
    if default not in (None, "", [], {}):
        made["default"] = default
    part = part_model(key.info.annotation)
    if part is not None:
        inside = {"properties": _properties(part, model_keys(part)), "additionalProperties": False}
        return {**made, "type": ["object", "null"], **inside}
    return {**made, **_or_null(_as_written(tidy_schema(_type_schema(key))))}


def _type_schema(key: Key) -> dict[str, Any]:
    return json_schema(key.info.annotation)


def _as_written(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type as a loop file takes it: a text may look like a number."""
    made = dict(schema)
    if made.get("type") == "string" and "enum" not in made:
        made["type"] = list(_TEXT["type"])
    if isinstance(made.get("items"), dict):
        made["items"] = _as_written(made["items"])
    if isinstance(made.get("additionalProperties"), dict):
        made["additionalProperties"] = _as_written(made["additionalProperties"])
    return made


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that may be left empty."""
    if "enum" in schema:
        made = {key: value for key, value in schema.items() if key != "type"}
        return {**made, "enum": [*schema["enum"], None]}
    kind = schema.get("type")
    if kind is None:
        return schema
    listed = kind if isinstance(kind, list) else [kind]
    return {**schema, "type": list(dict.fromkeys([*listed, "null"]))}
