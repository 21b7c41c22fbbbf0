"""Node types that act on the world, one file each.

    base        the only powers a node is given, and what it returns
    agent       ask a provider to do something in a directory
    session     what was counted of an agent's session, from one round to the next
    script      inline Python or TypeScript
    condition   a command or a judge that says met or not met
    judge       which of several candidates is best

`perform` is the one door: it finds the node's file by its type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.nodes import agent, condition, judge, script

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from infloop.model.values import JsonObject
    from infloop.nodes.base import Outcome, Powers

NODE_TYPES: Mapping[str, Callable[[Powers, JsonObject], Awaitable[Outcome]]] = {
    "agent": agent.perform,
    "script": script.perform,
    "condition": condition.perform,
    "judge": judge.perform,
}
