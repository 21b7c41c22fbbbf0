"""Who asks for something, and through which surface."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from infloop.application.models import Model
from infloop.model.audit import Actor, ActorKind

Surface: TypeAlias = Literal["cli", "api", "mcp"]

_IDENTIFIED = frozenset({"cli", "api-token", "browser-session"})


class Caller(msgspec.Struct, frozen=True):
    """A person or program that calls a use case.

    `transport` says how an MCP client is connected. Audit entries carry `correlation_id`.
    """

    actor: Actor
    surface: Surface
    correlation_id: str = ""
    transport: str = ""

    @property
    def is_identified(self) -> bool:
        """Whether this is a person; anybody else may be an agent, such as one without a token."""
        return self.actor.kind in _IDENTIFIED


class SessionInfo(Model, kw_only=True):
    """Who a caller is, and whether it may answer questions and apply changes."""

    actor: ActorKind
    can_answer: bool


COMMAND_LINE = Caller(Actor("cli"), "cli")
