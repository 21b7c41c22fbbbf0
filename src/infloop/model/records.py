"""Immutable records that check what they are made of: parts of files, and the settings.

A class declares its fields like this; every field has a default:

    class Port(Record):
        number: Annotated[int, After(valid_port)] = FieldInfo(0, "Port", "1 to 65535.")

Types are looked up and their checks are made when a class is used for the first time, so that
declaring a hundred classes costs next to nothing: a short command must answer at once.
"""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    get_origin,
    get_type_hints,
)

import msgspec

from infloop.model.type_checks import (
    WRONG,
    Check,
    Mistake,
    ValidationError,
    check_for,
    in_range,
    shift,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from infloop.model.values import JsonObject


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


class Widget(NamedTuple):
    """Says in the JSON Schema of a type how a form edits it."""

    name: WidgetName


class FieldInfo:
    """A declared field: its default, and the texts of forms and documents.

    alias        its key in the file
    template     the field, and every text inside it, may hold `{{references}}`
    file         a loop file may name a file that holds the text
    secret       the value is left out of the repr
    widget       how a form edits the field
    exclude_if   says which values need not be written
    factory      makes the default
    low, high    the range of a number
    """

    def __init__(
        self,
        default: Any,
        title: str = "",
        description: str = "",
        *,
        alias: str = "",
        template: bool = False,
        file: bool = False,
        secret: bool = False,
        widget: WidgetName | None = None,
        exclude_if: Callable[[Any], bool] | None = None,
        factory: Callable[[], Any] | None = None,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        self.default = default
        self.title = title
        self.description = description
        self.alias = alias
        self.template = template
        self.file = file
        self.secret = secret
        self.widget = widget
        self.exclude_if = exclude_if
        self.factory = factory
        self.low = low
        self.high = high
        self.name = ""
        self._owner: type = object

    def of(self, owner: type, name: str, alias: str) -> FieldInfo:
        """Return the field as one of a class; the same declaration may be used in several."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.name, made.alias, made._owner = name, self.alias or alias, owner
        return made

    def value(self) -> Any:
        """Return the default; a new one if it can be changed."""
        if self.factory is not None:
            return self.factory()
        return {**self.default} if isinstance(self.default, dict) else self.default

    @property
    def annotation(self) -> Any:
        """The type, without what `Annotated` adds."""
        hint = self.hint
        return hint.__origin__ if get_origin(hint) is Annotated else hint

    @property
    def metadata(self) -> tuple[Any, ...]:
        """What `Annotated` adds to the type."""
        hint = self.hint
        return hint.__metadata__ if get_origin(hint) is Annotated else ()

    @property
    def hint(self) -> Any:
        """The type as it is declared."""
        return _hints(self._owner)[self.name]


def _hints(owner: Any) -> Mapping[str, Any]:
    """Return the types of the fields that a class itself declares."""
    found: dict[str, Any] | None = owner.__dict__.get("_hints_of_fields")
    if found is None:
        names = inspect.get_annotations(owner)
        # Not the class itself: types of class variables need not exist when infloop runs.
        wanted = {name: names[name] for name in names if name in owner.own_fields}
        module = vars(sys.modules[owner.__module__])
        fields = SimpleNamespace(__annotations__=wanted)
        found = get_type_hints(fields, module, include_extras=True)
        owner._hints_of_fields = found  # noqa: SLF001
    return found


class _Shape(msgspec.Struct):
    """What is needed to make a record: name, key, check and default of each field."""

    fields: tuple[tuple[str, str, Check], ...]
    keys: frozenset[str]


_MISSING: Any = object()


class Record:
    """An immutable object with declared fields."""

    model_fields: ClassVar[Mapping[str, FieldInfo]] = {}
    own_fields: ClassVar[frozenset[str]] = frozenset()

    # For its JSON Schema: the title, if it is not the name of the class; the keys that a file
    # needs, although the fields have defaults; and fields that are accepted and not published.
    model_title: ClassVar[str] = ""
    required_keys: ClassVar[tuple[str, ...]] = ()
    unpublished_fields: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = {
            name: declared
            for name in inspect.get_annotations(cls)
            if isinstance(declared := cls.__dict__.get(name), FieldInfo)
        }
        fields = dict(cls.model_fields)
        for name, declared in own.items():
            fields[name] = declared.of(cls, name, cls.alias_of(name))
            delattr(cls, name)
        cls.model_fields = fields
        cls.own_fields = frozenset(own)

    def __init__(self, **given: Any) -> None:
        """Make a record of values by the names of fields. Raises ValidationError."""
        fields = self.model_fields
        if not given:
            self.__dict__.update({name: info.value() for name, info in fields.items()})
            return
        raw = {fields[name].alias if name in fields else name: given[name] for name in given}
        self.__dict__.update(self.model_validate(raw).__dict__)

    @classmethod
    def alias_of(cls, name: str) -> str:
        """Return the key of a field in a file."""
        return name

    @classmethod
    def prepare(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Return what is checked instead of `raw`."""
        return raw

    @classmethod
    def model_validate(cls, raw: object) -> Self:
        """Return the record that a JSON value means. Raises ValidationError."""
        mistakes: list[Mistake] = []
        made: Self = cls.checked(raw, mistakes)
        if mistakes:
            raise ValidationError(cls.__name__, mistakes)
        return made

    @classmethod
    def checked(cls, raw: Any, mistakes: list[Mistake]) -> Any:
        """Return the record that a JSON value means; or WRONG, after adding mistakes."""
        if not isinstance(raw, dict):
            if isinstance(raw, cls):
                return raw
            mistakes.append(Mistake("type", raw, "an object"))
            return WRONG
        given = cls.prepare(raw)
        shape: _Shape = cls.__dict__.get("_shape") or cls._made_shape()
        made = object.__new__(cls)
        values = made.__dict__
        since = before = len(mistakes)
        used = 0
        for name, key, check in shape.fields:
            value = given.get(key, _MISSING)
            if value is _MISSING:
                values[name] = cls.model_fields[name].value()
                continue
            used += 1
            values[name] = value = check(value, mistakes)
            if value is WRONG:
                shift(mistakes, since, key)
                since = len(mistakes)
        if used != len(given):
            unknown = (key for key in given if key not in shape.keys)
            mistakes += [Mistake("unknown", given[key], loc=(key,)) for key in unknown]
        return made if len(mistakes) == before else WRONG

    @classmethod
    def _made_shape(cls) -> _Shape:
        fields = tuple(
            (name, info.alias, in_range(check_for(info.hint, _check_of), info.low, info.high))
            for name, info in cls.model_fields.items()
        )
        shape = _Shape(fields, frozenset(key for _, key, _ in fields))
        cls._shape = shape  # type: ignore[attr-defined]
        return shape

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with other values, which are not checked."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__.update(update or {})
        return made

    def to_json(self) -> JsonObject:
        """Return the plain JSON form, with defaults filled in and without what is None."""
        made: JsonObject = {}
        for name, info in self.model_fields.items():
            value = self.__dict__[name]
            if value is not None and (info.exclude_if is None or not info.exclude_if(value)):
                made[info.alias] = _plain(value)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        shown = (
            f"{name}={self.__dict__[name]!r}"
            for name, info in self.model_fields.items()
            if not info.secret
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _check_of(model: type[Any]) -> Check:
    """Return the check for a class: that of a record, or of what is made of a text."""
    if issubclass(model, Record):
        return model.checked

    def from_text(value: Any, mistakes: list[Mistake]) -> Any:
        if isinstance(value, str | model):
            return model(value)
        mistakes.append(Mistake("type", value, f"a {model.__name__.lower()}"))
        return WRONG

    return from_text


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
