"""Parsed TOML becomes a configuration. Unknown keys become warnings with the nearest known key."""

from __future__ import annotations

import difflib
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import msgspec
from pydantic import ValidationError

from infloop.errors import UsageError
from infloop.model.dev.config import DevConfig, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.values import JsonObject


class ConfigError(UsageError):
    """A configuration that cannot be used; `causes` are ordered from general to exact."""

    def __init__(self, message: str, *causes: str) -> None:
        super().__init__(message, "invalid-dev-config")
        self.causes = causes


class DevFile(msgspec.Struct, frozen=True):
    """A valid configuration, where it is from, and what to warn about."""

    config: DevConfig
    path: str
    warnings: tuple[str, ...]


def parse_config(data: JsonObject, place: str) -> DevConfig:
    """Return the configuration; raise ConfigError for a value of the wrong type."""
    try:
        return DevConfig.model_validate(data)
    except ValidationError as error:
        causes = [_cause(each) for each in error.errors()]
        raise ConfigError(f"failed to parse config at {place}", *causes[:1]) from None


def _cause(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}"


def unknown_keys(data: JsonObject) -> list[str]:
    """Return a warning for each key that has no meaning."""
    return list(_unknown(data, DevConfig, ""))


def _unknown(data: Any, kind: Any, prefix: str) -> Iterator[str]:
    kind = _meant(data, kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(data, dict):
        for name, value in data.items():
            yield from _unknown(value, arguments[1], f"{prefix}{name}.")
    elif origin is list and isinstance(data, list):
        for number, value in enumerate(data):
            yield from _unknown(value, arguments[0], f"{prefix}{number}.")
    elif isinstance(kind, type) and issubclass(kind, Table):
        for name, value in data.items():
            field = kind.model_fields.get(name)
            if field is not None:
                yield from _unknown(value, field.annotation, f"{prefix}{name}.")
                continue
            near = difflib.get_close_matches(name, kind.model_fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f"unknown key {prefix}{name} is ignored{hint}"


def _meant(data: Any, kind: Any) -> Any:
    """Return the one of several types that a value is meant to be: by its shape and its tag."""
    if get_origin(kind) is Annotated:
        return _meant(data, get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        meant = (_meant(data, each) for each in get_args(kind))
        return next((each for each in meant if each is not None), None)
    if not isinstance(kind, type) or not issubclass(kind, Table):
        return kind if type(data) is get_origin(kind) else None
    tag = next((key for key in ("kind", "action") if key in kind.model_fields), "")
    tags = get_args(kind.model_fields[tag].annotation) if tag else ()
    return kind if isinstance(data, dict) and (not tags or data.get(tag) in tags) else None
