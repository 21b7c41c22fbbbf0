"""What the machine asks the world to do. Commands are carried out in the order they are given."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from infloop.model.events import Event
from infloop.model.values import JsonObject


class Emit(msgspec.Struct, frozen=True):
    """Record this event and feed it back to the machine."""

    event: Event


class Perform(msgspec.Struct, frozen=True):
    """Record that the step starts, make that durable, then do it; its outcome is an event."""

    path: str
    node: str
    node_type: str
    config: JsonObject
    iteration: int = 0
    attempt: int = 1


class Wait(msgspec.Struct, frozen=True):
    """Report when it is `until`, in milliseconds since 1970."""

    path: str
    node: str
    node_type: str
    until: int


class Interrupt(msgspec.Struct, frozen=True):
    """End a step that is being performed or waits; it still reports how it finished."""

    path: str
    reason: str


Command: TypeAlias = Emit | Perform | Wait | Interrupt
