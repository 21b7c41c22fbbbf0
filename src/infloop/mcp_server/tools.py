"""A tool: its name, arguments and function.

Arguments are a pydantic model, which gives the JSON Schema and the error messages. A tool returns a
JSON object, or raises an error of infloop whose text says what to do instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from infloop.errors import UsageError
from infloop.mcp_server.dependencies import McpDependencies

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.application.caller import Caller
    from infloop.model.values import JsonObject

PREFIX = "infloop_"
OLD_PREFIXES = ("infinite_loop_", "inflooop_")
"""Prefixes of the same tools in Infinite Loop; calls by these names work too."""


class Call(msgspec.Struct, frozen=True):
    """One call of a tool; `tell` reports progress to a client that asked for it."""

    arguments: JsonObject
    caller: Caller
    tell: Callable[[float, str], Awaitable[None]]


class Tool(msgspec.Struct, frozen=True):
    """Something a client can call. A call that changes something is never interrupted."""

    name: str
    title: str
    description: str
    schema: JsonObject
    call: Callable[[McpDependencies, Call], Awaitable[JsonObject]]
    reads_only: bool = False


class Arguments(BaseModel):
    """The arguments of a tool; keys are camelCase outside and snake_case here."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class Nothing(Arguments):
    """No arguments."""


Given = TypeVar("Given", bound=Arguments)


def utility(
    name: str,
    title: str,
    takes: type[Given],
    work: Callable[[McpDependencies, Given, Call], Awaitable[JsonObject]],
    *,
    reads_only: bool = False,
) -> Tool:
    """Return a tool that calls `work`; its docstring is the description for clients."""

    async def call(mcp: McpDependencies, asked: Call) -> JsonObject:
        return await work(mcp, _given(takes, asked.arguments), asked)

    described = " ".join((work.__doc__ or "").split())
    return Tool(PREFIX + name, title, described, _schema(takes), call, reads_only)


def _given(takes: type[Given], arguments: JsonObject) -> Given:
    try:
        return takes.model_validate(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        known = [info.alias or name for name, info in takes.model_fields.items()]
        there = f"it takes: {', '.join(known)}" if known else "it takes none"
        raise UsageError(f"argument {place[:60]!r}: {first['msg']}; {there}") from None


def _schema(takes: type[Arguments]) -> JsonObject:
    """Return the JSON Schema, without the titles that repeat the names."""
    schema = takes.model_json_schema()
    properties: dict[str, JsonObject] = schema.get("properties", {})
    for part in (schema, *properties.values()):
        part.pop("title", None)
    schema.pop("description", None)
    return {**schema, "properties": properties}
