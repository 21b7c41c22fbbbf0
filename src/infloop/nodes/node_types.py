"""All node types with effects, and what performs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.nodes import agent, approval, command, condition, judge, script

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from infloop.model.values import JsonObject
    from infloop.nodes.base import Outcome, StepContext

NODE_TYPES: Mapping[str, Callable[[StepContext, JsonObject], Awaitable[Outcome]]] = {
    "agent": agent.perform,
    "script": script.perform,
    "command": command.perform,
    "condition": condition.perform,
    "judge": judge.perform,
    "approval": approval.perform,
}
