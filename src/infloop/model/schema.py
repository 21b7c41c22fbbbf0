"""Declares the fields of a file, validates a file, and publishes its JSON Schema.

    FileModel, field   declare a part of a file: keys, defaults, titles and descriptions
    fit                validates an object
    publish            returns the JSON Schema of a model

`fit` reports every mistake and leaves out what is wrong, so that the rest can be checked too.
"""

from __future__ import annotations

import json
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
)
from typing import get_args as type_arguments

from infloop.errors import Problem
from infloop.model.problems import MAX_PROBLEMS, place_of, short_repr
from infloop.model.records import FieldInfo, Record, Widget, WidgetName
from infloop.model.type_checks import WRONG, After, Before, Mistake, union_members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


Whole = Annotated[int, Before(_whole), After(_in_range)]
Milliseconds = Annotated[Whole, After(_short_enough), Widget("duration")]
Number = Annotated[float, After(_in_range)]
Flag: TypeAlias = bool

TextUse: TypeAlias = Literal["text", "shell", "variable", "pattern", "selector"]


class Used(NamedTuple):
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
    return FieldInfo(
        default,
        title,
        description,
        alias=alias or "",
        template=template,
        file=file,
        secret=secret,
        widget=widget,
        exclude_if=exclude_if,
    )


class FileModel(Record):
    """A part of a file. Keys are camelCase in the file and snake_case in Python.

    Every field has a default, so that missing fields can be reported together with all other
    problems; `required_keys` names those that a file needs. null means missing, and so does an
    empty string in a field that is not a string.
    """

    # What a loop file calls a field, and its default there, where these differ from the JSON file.
    loop_names: ClassVar[Mapping[str, str]] = {}
    loop_defaults: ClassVar[JsonObject] = {}
    # A part that protects something, and fields that do: what looks like a misspelt one of these is
    # an error wherever other unknown keys are only warnings.
    protects: ClassVar[bool] = False
    protective_fields: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def alias_of(cls, name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(map(str.capitalize, rest))

    @classmethod
    def prepare(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Drop what means missing."""
        values = raw.values()
        if None not in values and "" not in values:
            return raw
        texts = _text_keys(cls)  # type: ignore[arg-type]  # mypy takes the hash of instances
        return {
            key: value
            for key, value in raw.items()
            if value is not None and (value != "" or key in texts)
        }


class Document(FileModel):
    """A whole file."""

    schema_uri: str | None = field(
        None, "Schema", "Where an editor finds the JSON Schema of this file.", alias="$schema"
    )


@cache
def _text_keys(model: type[FileModel]) -> frozenset[str]:
    """Return the keys whose values may be strings."""
    return frozenset(
        info.alias
        for info in model.model_fields.values()
        if info.annotation is Any or str in union_members(info.annotation)
    )


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
        mistakes: list[Mistake] = []
        made: Model = model.checked(raw, mistakes)
        if made is not WRONG:
            return made
        if len(mistakes) > MAX_PROBLEMS:
            report.error(place or "file", f"holds {len(mistakes)} mistakes")
            return None
        for mistake in mistakes:
            _report(model, mistake, report, place, unknown_keys)
        if not all(mistake.loc for mistake in mistakes):
            return None
        raw = _without(raw, [mistake.loc for mistake in mistakes])
    return None


def _report(
    model: type[FileModel],
    mistake: Mistake,
    report: Report,
    place: str,
    unknown_keys: Severity,
) -> None:
    loc = mistake.loc
    severity: Severity = "error"
    unsafe = _is_protection(model, loc)
    if mistake.kind == "unknown":
        part, key = _part_at(model, loc[:-1]), str(loc[-1])
        unsafe = unsafe or part is None or _may_protect(part, key)
        severity = "error" if unsafe else unknown_keys
        known = [name for name in _keys_of(part) if name != "$schema"]
        message, hint = f"unknown field {short_repr(loc[-1])}", report.guess(key, known)
        loc = loc[:-1]
    else:
        message, hint = _explain(mistake, report)
    inside = place_of(loc)
    where = f"{place} {inside}" if place and inside else place or inside or "file"
    report.add(Problem(where, message, hint, severity, unsafe=unsafe))


# A message about these must not contain their values.
_SECRET_KEYS = frozenset({"auth", "previousSecret", "secret", "token"})


def _explain(mistake: Mistake, report: Report) -> tuple[str, str]:
    match mistake.kind:
        case "choice":
            hint = report.guess(str(mistake.given), mistake.choices)
            return f"{short_repr(mistake.given)} is not a choice here", hint
        case "type":
            hidden = not _SECRET_KEYS.isdisjoint(mistake.loc)
            got = "" if hidden else f", got {short_repr(mistake.given)}"
            return f"expected {mistake.expected}{got}", ""
        case _:
            return mistake.expected, ""


def report_missing(model: type[FileModel], raw: object, report: Report, place: str = "") -> None:
    """Report required keys that are missing or empty, in all parts of a file."""
    if isinstance(raw, list):
        for index, item in enumerate(raw):
            report_missing(model, item, report, f"{place}[{index}]")
    if not isinstance(raw, dict):
        return
    for key in model.required_keys:
        if raw.get(key) in (None, "", []):
            report.error(f"{place}.{key}" if place else key, "is missing")
    for info in model.model_fields.values():
        key, part = info.alias, part_model(info.annotation)
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
        fields = {info.alias: info for info in part.model_fields.values()}
        part = part_model(fields[key].annotation) if key in fields else None
    return part


def _keys_of(part: type[FileModel] | None) -> list[str]:
    return [info.alias for info in part.model_fields.values()] if part else []


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
    from difflib import get_close_matches

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
    from infloop.model.json_schema import json_schema

    schema: dict[str, Any] = tidy_schema(json_schema(shape))
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
