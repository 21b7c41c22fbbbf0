"""Who asks for something, and through which surface."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from infloop.model.audit import Actor

Surface: TypeAlias = Literal["cli", "api", "mcp"]


class Caller(msgspec.Struct, frozen=True):
    """A person or program that calls a use case.

    `transport` says how an MCP client is connected. Audit entries carry `correlation_id`.
    """

    actor: Actor
    surface: Surface
    correlation_id: str = ""
    transport: str = ""


COMMAND_LINE = Caller(Actor("cli"), "cli")
