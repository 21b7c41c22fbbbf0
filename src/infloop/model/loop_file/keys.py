"""The words of a loop file: which key means which field of the model.

Nothing here names a node type. A class says what a loop file calls it (`NodeBase.step_key`), which
field the value of that key is (`main_field`), what its fields are called (`FileModel.loop_names`)
and their defaults there (`loop_defaults`). Everything else follows a rule:

    timeoutMs     timeout: 10m       a duration
    maxCostUsd    maxCost: $5        an amount of money
    providerId    provider: claude
    prompt        promptFile: x.md   the text of a file, for fields that are declared with it

A field is always available by its own name as well.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import msgspec

from infloop.model.nodes import NODE_MODELS
from infloop.model.schema import FileModel, part_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.nodes import NodeModel
    from infloop.model.records import FieldInfo
    from infloop.model.values import JsonValue

Form: TypeAlias = Literal["plain", "duration", "money", "file"]

# What every step may have besides its fields and handles.
STEP_KEYS = ("id", "label")
# How a handle is called where that is not its own name.
_HANDLE_KEYS = {"error": ("onError", "error"), "true": ("then",), "false": ("else",)}


class Key(msgspec.Struct, frozen=True):
    """A key of a loop file: the field that it sets, and how its value is written."""

    key: str
    name: str
    form: Form
    info: FieldInfo


class StepWords(msgspec.Struct, frozen=True):
    """The keys of one kind of step."""

    model: NodeModel
    node_type: str
    kind: str
    main: Key | None
    main_is_id: bool
    keys: Mapping[str, Key]
    handles: Mapping[str, str]

    def handle_key(self, handle: str) -> str:
        """Return the key of a handle that is preferred."""
        return next(key for key, name in self.handles.items() if name == handle)


def model_keys(model: type[FileModel], without: tuple[str, ...] = ()) -> dict[str, Key]:
    """Return the keys of a part of the file; the first of a field is the preferred one."""
    keys: dict[str, Key] = {}
    for info in model.model_fields.values():
        name = info.alias
        if name in without:
            continue
        short, form = _short(model, name)
        for key, how in ((short, form), (name, "plain")):
            keys.setdefault(key, Key(key, name, how, info))
        if info.file:
            keys[f"{name}File"] = Key(f"{name}File", name, "file", info)
    return keys


def _short(model: type[FileModel], name: str) -> tuple[str, Form]:
    forms: tuple[tuple[str, Form], ...] = (("Ms", "duration"), ("Usd", "money"), ("Id", "plain"))
    for suffix, form in forms:
        if name.endswith(suffix):
            return model.loop_names.get(name, name.removesuffix(suffix)), form
    return model.loop_names.get(name, name), "plain"


def default_of(model: type[FileModel], name: str) -> JsonValue:
    """Return the value of a field that a loop file does not mention, as JSON."""
    if name in model.loop_defaults:
        return model.loop_defaults[name]
    return _defaults(model).get(name)  # type: ignore[arg-type]  # see `prepare`


@cache
def _defaults(model: type[FileModel]) -> Mapping[str, JsonValue]:
    return model().to_json()


def config_model(model: NodeModel) -> type[FileModel]:
    """Return the class of a node type's configuration."""
    return cast("type[FileModel]", part_model(model.model_fields["config"].annotation))


@cache
def step_words(kind: str) -> StepWords:
    """Return the words of a kind of step; KeyError if there is no such kind."""
    model = _models()[kind]
    config = config_model(model)
    main_is_id = model.main_field == "id"
    every = model_keys(config)
    main = None if main_is_id else every.get(model.main_field)
    taken = {*_models(), *STEP_KEYS}
    keys = {
        key: one for key, one in model_keys(config, (model.main_field,)).items() if key not in taken
    }
    handles: dict[str, str] = {}
    for handle in model.handles:
        for key in _HANDLE_KEYS.get(handle, (_camel(handle),)):
            if key not in keys:
                handles[key] = handle
    return StepWords(
        model, model.model_fields["type"].default, kind, main, main_is_id, keys, handles
    )


@cache
def _models() -> Mapping[str, NodeModel]:
    return {model.step_key or name: model for name, model in NODE_MODELS.items()}


def kinds() -> tuple[str, ...]:
    """Return the kinds of steps, in the order of the node types."""
    return tuple(_models())


def kind_of(node_type: str) -> str:
    """Return the kind of step that a node type is."""
    return NODE_MODELS[node_type].step_key or node_type


def _camel(handle: str) -> str:
    first, *rest = handle.split("_")
    return first + "".join(map(str.capitalize, rest))
