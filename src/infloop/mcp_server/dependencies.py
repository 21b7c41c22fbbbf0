"""What the tools are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.mcp_server.slots import Slots

if TYPE_CHECKING:
    from infloop.application.application import Application

MAX_WAITS = 64
"""How many calls may wait for runs at once, of all clients together."""


class McpDependencies(msgspec.Struct, frozen=True):
    """The use cases, and a bound on waiting calls."""

    application: Application
    waits: Slots = msgspec.field(default_factory=lambda: Slots(MAX_WAITS))
