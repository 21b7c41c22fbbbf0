"""Declares the fields of a file, validates a file, and publishes its JSON Schema.

    FileModel, field   declare a part of a file: keys, defaults, titles and descriptions
    fit                validates an object
    publish            returns the JSON Schema of a model

`fit` reports every mistake and leaves out what is wrong, so that the rest can be checked too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, Union
from typing import get_args as type_arguments
from typing import get_origin as type_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic import model_validator as validator
from pydantic.alias_generators import to_camel

from infloop.errors import Problem
from infloop.model.problems import MAX_PROBLEMS, place_of, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema, ErrorDetails

    from infloop.errors import Severity
    from infloop.model.problems import Report
    from infloop.model.values import JsonObject


Numeric = TypeVar("Numeric", int, float)

# -- declaring -------------------------------------------------------------------------------


MAX_NUMBER = 2**53 - 1
"""The largest whole number that every reader of JSON keeps as it is."""
MAX_DURATION_MS = 10 * 365 * 86_400_000


def _whole(value: object) -> object:
    """Return `60000.0` as the integer that was meant."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_range(value: Numeric) -> Numeric:
    if not abs(value) <= MAX_NUMBER:  # also for a value that is not a number
        raise ValueError(f"{short_repr(value)} is out of range; use at most {MAX_NUMBER}")
    return value


def _short_enough(value: int) -> int:
    if value > MAX_DURATION_MS:
        raise ValueError(f"{value} ms is longer than ten years; use at most {MAX_DURATION_MS}")
    return value


WidgetName: TypeAlias = Literal[
    "agent",
    "code",
    "directory",
    "duration",
    "pattern",
    "profile",
    "provider",
    "shell",
    "text",
    "variables",
    "workflow",
]
"""How a form edits a field, where its type does not say so; `text` has several lines."""


@dataclass(frozen=True, slots=True)
class Widget:
    """Says in the JSON Schema of a type how a form edits it."""

    name: WidgetName

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(core), "widget": self.name}


Whole = Annotated[int, Strict(), BeforeValidator(_whole), AfterValidator(_in_range)]
Milliseconds = Annotated[Whole, AfterValidator(_short_enough), Widget("duration")]
Number = Annotated[float, Strict(), AfterValidator(_in_range)]
Flag = Annotated[bool, Strict()]

TextUse: TypeAlias = Literal["text", "shell", "variable", "pattern", "selector"]


@dataclass(frozen=True, slots=True)
class Used:
    """What a text with references is used for, where that decides how a value is put in.

    shell      a shell line: a value becomes a variable in the `env` next to it, never shell text
    variable   the value of a variable of a shell line: it must not be missing
    pattern    a text to look for: a value stands for itself, and must not be missing
    selector   chooses where or as what a step runs: a directory, a commit, an agent, a model
    """

    use: TextUse


ShellLine = Annotated[str, Used("shell"), Widget("shell")]
Variables = Annotated[dict[str, str], Used("variable"), Widget("variables")]
Pattern = Annotated[str, Used("pattern"), Widget("pattern")]
Selector = Annotated[str | None, Used("selector")]


def field(
    default: object,
    title: str,
    description: str,
    *,
    template: bool = False,
    file: bool = False,
    secret: bool = False,
    widget: WidgetName | None = None,
    alias: str | None = None,
    exclude_if: Callable[[Any], bool] | None = None,
) -> Any:
    """Declare a field of a file: its default, and the texts of forms and documents.

    template     the field, and every text inside it, may hold `{{references}}`
    file         a loop file may name a file that holds the text: `promptFile: fix.md`
    secret       the value is left out of the repr of its model
    widget       how a form edits the field
    exclude_if   says which values need not be written
    """
    extra: dict[str, Any] = {"template": True} if template else {}
    if file:
        extra["file"] = True
    if secret:
        extra["writeOnly"] = True
    if widget:
        extra["widget"] = widget
    return Field(
        default,
        alias=alias,
        title=title,
        description=description,
        repr=not secret,
        exclude_if=exclude_if,
        json_schema_extra=extra or None,
    )


def required(*keys: str) -> ConfigDict:
    """Declare the keys that a file needs; `report_missing` reports the missing ones."""
    return ConfigDict(json_schema_extra={"required": list(keys)})


class FileModel(BaseModel):
    """A part of a file. Keys are camelCase in the file and snake_case in Python.

    Every field has a default, so that missing fields can be reported together with all other
    problems. null means missing, and so does an empty string in a field that is not a string.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    # What a loop file calls a field, and its default there, where these differ from the JSON file.
    loop_names: ClassVar[Mapping[str, str]] = {}
    loop_defaults: ClassVar[JsonObject] = {}
    # A part that protects something, and fields that do: what looks like a misspelt one of these is
    # an error wherever other unknown keys are only warnings.
    protects: ClassVar[bool] = False
    protective_fields: ClassVar[frozenset[str]] = frozenset()

    @validator(mode="before")
    @classmethod
    def _drop_blanks(cls, raw: object) -> object:
        if not isinstance(raw, dict):
            return raw
        values = raw.values()
        if None not in values and "" not in values:
            return raw
        texts = _text_keys(cls)
        return {
            key: value
            for key, value in raw.items()
            if value is not None and (value != "" or key in texts)
        }

    def to_json(self) -> JsonObject:
        """Return the plain JSON form, with defaults filled in."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Document(FileModel):
    """A whole file."""

    schema_uri: str | None = field(
        None, "Schema", "Where an editor finds the JSON Schema of this file.", alias="$schema"
    )


@cache
def _text_keys(model: type[FileModel]) -> frozenset[str]:
    """Return the keys whose values may be strings, in both spellings."""
    keys: set[str] = set()
    for name, info in model.model_fields.items():
        if str in _alternatives(info.annotation) or info.annotation is Any:
            keys.update((name, info.alias or name))
    return frozenset(keys)


def _alternatives(annotation: object) -> tuple[object, ...]:
    if type_origin(annotation) in (Union, UnionType):
        return type_arguments(annotation)
    return (annotation,)


# -- fitting ---------------------------------------------------------------------------------


Model = TypeVar("Model", bound=FileModel)

# A mistake may hide others, for example a wrong field inside a part of the wrong type. The number
# of rounds is limited because a hostile file could need very many.
_FITTING_ROUNDS = 4


def fit(
    model: type[Model],
    raw: object,
    report: Report,
    place: str = "",
    *,
    unknown_keys: Severity = "error",
) -> Model | None:
    """Return `raw` as `model`, without the invalid parts; each of them is reported.

    `unknown_keys` is the severity of an unknown key, unless it may be a misspelt protection: that
    is always an error. None means that nothing could be used.
    """
    for _ in range(_FITTING_ROUNDS):
        try:
            return model.model_validate(raw, by_alias=True, by_name=False)
        except ValidationError as error:
            if error.error_count() > MAX_PROBLEMS:
                report.error(place or "file", f"holds {error.error_count()} mistakes")
                return None
            details = error.errors(include_url=False)
        for detail in details:
            _report(model, detail, report, place, unknown_keys)
        if not all(detail["loc"] for detail in details):
            return None
        raw = _without(raw, [detail["loc"] for detail in details])
    return None


def _report(
    model: type[FileModel],
    detail: ErrorDetails,
    report: Report,
    place: str,
    unknown_keys: Severity,
) -> None:
    loc = detail["loc"]
    severity: Severity = "error"
    unsafe = _is_protection(model, loc)
    if detail["type"] == "extra_forbidden":
        part, key = _part_at(model, loc[:-1]), str(loc[-1])
        unsafe = unsafe or part is None or _may_protect(part, key)
        severity = "error" if unsafe else unknown_keys
        known = [name for name in _keys_of(part) if name != "$schema"]
        message, hint = f"unknown field {short_repr(loc[-1])}", report.guess(key, known)
        loc = loc[:-1]
    else:
        message, hint = _explain(detail, report)
    inside = place_of(loc)
    where = f"{place} {inside}" if place and inside else place or inside or "file"
    report.add(Problem(where, message, hint, severity, unsafe=unsafe))


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "text",
    "tuple_type": "a list",
}


# A message about these must not contain their values.
_SECRET_KEYS = frozenset({"auth", "previousSecret", "secret", "token"})


def _explain(detail: ErrorDetails, report: Report) -> tuple[str, str]:
    kind, given = detail["type"], detail["input"]
    if kind in _EXPECTED:
        hidden = not _SECRET_KEYS.isdisjoint(detail["loc"])
        return f"expected {_EXPECTED[kind]}" + ("" if hidden else f", got {short_repr(given)}"), ""
    if kind == "literal_error":
        choices = detail["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return f"{short_repr(given)} is not a choice here", report.guess(str(given), choices)
    if kind == "value_error":
        return str(detail["ctx"]["error"]), ""
    return f"{detail['msg']}, got {short_repr(given)}", ""


def report_missing(model: type[FileModel], raw: object, report: Report, place: str = "") -> None:
    """Report required keys that are missing or empty, in all parts of a file."""
    if isinstance(raw, list):
        for index, item in enumerate(raw):
            report_missing(model, item, report, f"{place}[{index}]")
    if not isinstance(raw, dict):
        return
    extra = model.model_config.get("json_schema_extra")
    needed = extra.get("required") if isinstance(extra, dict) else None
    for key in needed if isinstance(needed, list) else ():
        if raw.get(key) in (None, "", []):
            report.error(f"{place}.{key}" if place else str(key), "is missing")
    for name, info in model.model_fields.items():
        key, part = info.alias or name, part_model(info.annotation)
        if part is not None and key in raw:
            report_missing(part, raw[key], report, f"{place}.{key}" if place else key)


def _part_at(model: type[FileModel], loc: Sequence[str | int]) -> type[FileModel] | None:
    """Return the part of `model` at `loc`."""
    part: type[FileModel] | None = model
    for key in loc:
        if part is None:
            return None
        if isinstance(key, int):
            continue
        fields = {info.alias or name: info for name, info in part.model_fields.items()}
        part = part_model(fields[key].annotation) if key in fields else None
    return part


def _keys_of(part: type[FileModel] | None) -> list[str]:
    return [info.alias or name for name, info in part.model_fields.items()] if part else []


def _is_protection(model: type[FileModel], loc: Sequence[str | int]) -> bool:
    """Say whether something at `loc` or around it protects."""
    parts = ((_part_at(model, loc[:depth]), key) for depth, key in enumerate(loc))
    return any(part and (part.protects or key in part.protective_fields) for part, key in parts)


def _may_protect(part: type[FileModel], key: str) -> bool:
    """Say whether an unknown key may be a misspelt protection, which must not be left out."""
    if part.protects:
        return True
    word = "".join(filter(str.isalnum, key.lower()))
    names = {name.lower() for name in part.protective_fields}
    near = get_close_matches(word[:100], names, n=1, cutoff=0.75)
    return bool(near) or any(word.startswith(name) for name in names)


def part_model(annotation: object) -> type[FileModel] | None:
    """Return the model inside an annotation such as `tuple[Part, ...]` or `Part | None`."""
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        return annotation
    return next(filter(None, map(part_model, type_arguments(annotation))), None)


def _without(raw: object, locs: Sequence[tuple[str | int, ...]]) -> object:
    """Return a copy of `raw` without the parts at `locs`."""
    copy: Any = json.loads(json.dumps(raw))
    # Later list items first, so that the earlier ones keep their index.
    for loc in sorted(locs, key=lambda loc: tuple(map(_rank, loc)), reverse=True):
        target = copy
        for key in loc[:-1]:
            inner = _item(target, key)
            if not isinstance(inner, dict | list):
                break
            target = inner
        else:
            if loc and _item(target, loc[-1]) is not _NOTHING:
                del target[loc[-1]]
    return copy


_NOTHING = object()


def _rank(key: str | int) -> tuple[int, int, str]:
    return (0, key, "") if isinstance(key, int) else (1, 0, key)


def _item(container: Any, key: str | int) -> Any:
    if isinstance(container, dict):
        return container.get(key, _NOTHING)
    if isinstance(container, list) and isinstance(key, int) and 0 <= key < len(container):
        return container[key]
    return _NOTHING


# -- publishing ------------------------------------------------------------------------------


def publish(shape: Any, name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a file that is a model or one of several models."""
    schema: dict[str, Any] = tidy_schema(TypeAdapter(shape).json_schema(by_alias=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:infloop:schema:{name}",
        **schema,
    }


def tidy_schema(value: Any) -> Any:
    """Return a schema that editors and forms can use.

    `anyOf` with null becomes the plain type. A choice by one key (`discriminator`, which is not a
    part of JSON Schema) becomes one `if` for each value, so that a mistake is reported where it is.
    """
    if isinstance(value, list):
        return [tidy_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: tidy_schema(item) for key, item in value.items()}
    if "discriminator" in made and "oneOf" in made:
        made = {**_chosen_by_key(made.pop("discriminator"), made.pop("oneOf")), **made}
    choices = [item for item in made.get("anyOf", ()) if item != {"type": "null"}]
    if len(choices) == 1:
        del made["anyOf"]
        made = {**choices[0], **made}
    if "default" in made and (made["default"] is None or "$ref" in made):
        del made["default"]
    return made


def _chosen_by_key(discriminator: Any, choices: list[Any]) -> dict[str, Any]:
    key, mapping = discriminator["propertyName"], discriminator.get("mapping", {})
    named = {
        name: choice
        for name, ref in mapping.items()
        for choice in choices
        if choice == {"$ref": ref}
    }
    return {
        "type": "object",
        "required": [key],
        "properties": {key: {"enum": list(named)}},
        "allOf": [
            {"if": {"properties": {key: {"const": name}}, "required": [key]}, "then": choice}
            for name, choice in named.items()
        ],
    }
