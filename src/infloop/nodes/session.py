"""What has been counted of an agent's session, handed on from one round of a loop to the next.

Some agents report the tokens and the cost of their whole session. Who continues a session must know
what was counted of it before, or it counts twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.nodes.base import whole_number
from infloop.policy.spending import is_amount
from infloop.providers.base import NO_USAGE, Usage

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.base import Answer, Request


def counted_before(config: JsonObject) -> Usage:
    """Return what the rounds before counted of the session that a step continues."""
    tokens = config.get("sessionTokens")
    if not isinstance(tokens, dict) or not config.get("sessionId"):
        return NO_USAGE
    return Usage(
        whole_number(tokens.get("input"), 0),
        whole_number(tokens.get("output"), 0),
        whole_number(tokens.get("cached"), 0),
        whole_number(tokens.get("cacheWrite"), 0),
    )


def cost_before(config: JsonObject) -> float:
    """Return what the rounds before counted as the cost of the session that a step continues."""
    cost = config.get("sessionCostUsd")
    if not isinstance(cost, int | float) or not is_amount(cost) or not config.get("sessionId"):
        return 0.0
    return float(cost)


def counted_by_now(request: Request, answer: Answer) -> JsonObject:
    """Return the session that an answer names, and all that was counted of it, as outputs."""
    total, cost = answer.usage, answer.cost_usd or 0.0
    if answer.session == request.session_id:
        total = request.session_usage + total
        cost = request.session_cost_usd + cost
    tokens: JsonObject = {
        "input": total.input_tokens,
        "output": total.output_tokens,
        "cached": total.cached_tokens,
        "cacheWrite": total.cache_write_tokens,
    }
    told: JsonObject = {"sessionId": answer.session, "sessionTokens": tokens}
    return {**told, "sessionCostUsd": cost} if cost else told
