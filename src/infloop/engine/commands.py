"""What the machine asks the runtime to do. Commands are executed in order."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from infloop.model.events import Event
from infloop.model.values import JsonObject


class Emit(msgspec.Struct, frozen=True):
    """Record this event and pass it to `advance`."""

    event: Event


class Perform(msgspec.Struct, frozen=True):
    """Record that the step starts, make that durable, then perform it. Its outcome is an event."""

    path: str
    node: str
    node_type: str
    config: JsonObject
    iteration: int = 0
    attempt: int = 1


class Wait(msgspec.Struct, frozen=True):
    """Report `WaitOver` at `until`, in milliseconds since 1970."""

    path: str
    node: str
    node_type: str
    until: int


class Interrupt(msgspec.Struct, frozen=True):
    """Stop a step that is performed or waits; it still reports its outcome."""

    path: str
    reason: str


Command: TypeAlias = Emit | Perform | Wait | Interrupt
