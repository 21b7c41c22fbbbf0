"""Reads the tables of `infloop.toml` that configure the built-in agent.

Rules
  * An unknown key, a missing key and a value of another type are problems; each names its table.
  * A problem never shows a value: somebody may have put a key where its name belongs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import inspect

from infloop.errors import EgressError
from infloop.model.agent_config import AgentConfig
from infloop.model.hosts import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Raw: TypeAlias = Mapping[str, object]

_CDP = ("ws", "wss")

TABLES = tuple(AgentConfig.__struct_fields__)
"""The tables: all other names of the file are settings."""


def read_tables(raw: Raw) -> tuple[AgentConfig, list[str]]:
    """Return the configuration and what is wrong with it; with problems, it is the default one."""
    found = {name: raw[name] for name in TABLES if name in raw}
    problems = list(_problems(inspect.type_info(AgentConfig), found, ""))
    if problems:
        return AgentConfig(), problems
    try:
        config = msgspec.convert(found, AgentConfig)
    except msgspec.ValidationError as error:
        return AgentConfig(), [str(error)]
    return config, list(_contradictions(config))


def shown_tables(config: AgentConfig) -> dict[str, str | int | bool]:
    """Return what the tables say beyond their defaults: `providers.ollama.kind` and its value."""
    shown: dict[str, str | int | bool] = {}

    def walk(value: object, default: object, place: str) -> None:
        match value:
            case dict():
                was = default if isinstance(default, dict) else {}
                for name, each in value.items():
                    walk(each, was.get(name), f"{place}.{name}" if place else name)
            case list() | tuple() if value and isinstance(value[0], dict):
                for number, each in enumerate(value, 1):
                    walk(each, None, f"{place}[{number}]")
            case list() | tuple() if value and value != default:
                shown[place] = ", ".join(map(str, value))
            case str() | int() if value != default and value != "":
                shown[place] = value
            case _:
                pass

    walk(msgspec.to_builtins(config), msgspec.to_builtins(AgentConfig()), "")
    return shown


def _contradictions(config: AgentConfig) -> Iterator[str]:
    """Yield what each table may say alone, and what does not fit together."""
    for name, provider in config.providers.items():
        if not name.replace("-", "").replace("_", "").isalnum():
            yield f"[providers.{name[:40]}]: a name has letters, digits, `-` and `_`"
        if provider.kind == "openai-compatible" and not provider.base_url:
            yield f"[providers.{name}] needs the key 'base_url'"
        yield from _address_problem(f"[providers.{name}] base_url", provider.base_url)
    for kind in config.router.__struct_fields__:
        route = getattr(config.router, kind)
        if route is not None and route.provider not in config.providers:
            near = difflib.get_close_matches(route.provider[:80], config.providers, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f"[router.{kind}] provider: there is no such table below [providers]{hint}"
    yield from _address_problem("[agent] search_url", config.agent.search_url)
    yield from _address_problem("[agent] browser_cdp_url", config.agent.browser_cdp_url, _CDP)
    for key in ("max_turns", "max_output_tokens"):
        if not getattr(config.agent, key):
            yield f"[agent] {key}: must be at least 1"


def _address_problem(place: str, address: str, schemes: Sequence[str] = ()) -> Iterator[str]:
    filled = address.replace("{query}", "query").replace("{count}", "1")
    scheme, separator, rest = filled.partition("://")
    try:
        if address:
            parse_url(f"http://{rest}" if separator and scheme in schemes else filled)
    except EgressError:
        yield f"{place}: must be an http or https address without a user or a password"


def _problems(kind: inspect.Type, value: object, place: str) -> Iterator[str]:
    match kind:
        case inspect.UnionType(types=types):
            (kind,) = (each for each in types if not isinstance(each, inspect.NoneType))
            yield from _problems(kind, value, place)
        case inspect.StructType():
            yield from _table_problems(kind, value, place)
        case inspect.DictType(value_type=value_type) if isinstance(value, dict):
            for name, each in value.items():
                yield from _problems(value_type, each, f"{place}.{name[:40]}")
        case inspect.VarTupleType(item_type=item_type) if isinstance(value, list):
            for number, each in enumerate(value, 1):
                yield from _problems(item_type, each, f"{place}[{number}]")
        case inspect.LiteralType(values=values):
            if value not in values:
                yield f"{_key(place)}: {_choices(values, value)}"
        case inspect.IntType() if isinstance(value, int) and not isinstance(value, bool):
            if value < 0:
                yield f"{_key(place)}: must not be negative"
        case inspect.StrType() if isinstance(value, str):
            pass
        case inspect.BoolType() if isinstance(value, bool):
            pass
        case _:
            yield f"{_key(place)}: must be {_NAMES.get(type(kind), 'another value')}"


def _table_problems(kind: inspect.StructType, value: object, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"[{place}] must be a table"
        return
    fields = {each.name: each for each in kind.fields}
    for name in value:
        if name not in fields:
            near = difflib.get_close_matches(name[:80], fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(fields)}"
            yield f"[{place}] has no key {name[:40]!r}{hint}"
    for name, field in fields.items():
        below = f"{place}.{name}" if place else name
        if name in value:
            yield from _problems(field.type, value[name], below)
        elif field.required:
            yield f"[{place}] needs the key {name!r}"


def _choices(values: tuple[object, ...], value: object) -> str:
    known = [str(each) for each in values]
    near = difflib.get_close_matches(value[:40], known, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"must be one of {', '.join(known)}{hint}"


def _key(place: str) -> str:
    table, _, name = place.rpartition(".")
    return f"[{table}] {name}" if table else f"[{place}]"


_NAMES: Mapping[type[inspect.Type], str] = {
    inspect.StrType: "a text",
    inspect.IntType: "a whole number",
    inspect.BoolType: "true or false",
    inspect.VarTupleType: "a list",
    inspect.DictType: "a table",
}
