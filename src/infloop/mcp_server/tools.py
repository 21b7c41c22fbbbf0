"""A tool: its name, what it takes, what it does.

What a tool takes is a pydantic model, so its JSON Schema and its refusals come from one place. A
tool returns a JSON object; what it cannot do it raises as an error of infloop, whose text tells
the caller what to do instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

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
"""How the same tools were called elsewhere; calls by these names are answered."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool; `tell` shows progress to who asked for it."""

    arguments: JsonObject
    caller: Caller
    tell: Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a client can call. One that does not only read is never left half done."""

    name: str
    title: str
    description: str
    schema: JsonObject
    call: Callable[[McpDependencies, Call], Awaitable[JsonObject]]
    reads_only: bool = False


class Arguments(BaseModel):
    """What a tool takes: keys are camelCase outside and snake_case here."""

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
    """Return the tool that calls `work`, whose docstring is what clients are told of it."""

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
