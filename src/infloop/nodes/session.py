"""Usage of an agent's session that earlier rounds of a loop have counted.

Some agents report the tokens and the cost of their whole session. A step that continues a session
must know what was counted before, or it would count that twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.nodes.base import whole_number
from infloop.policy.spending import is_amount
from infloop.providers.base import NO_USAGE, Usage

if TYPE_CHECKING:
    from infloop.model.values import JsonObject
    from infloop.providers.base import Answer, Request


def session_usage(config: JsonObject) -> Usage:
    """Return the tokens that earlier rounds counted for the session that a step continues."""
    tokens = config.get("sessionTokens")
    if not isinstance(tokens, dict) or not config.get("sessionId"):
        return NO_USAGE
    return Usage(
        whole_number(tokens.get("input"), 0),
        whole_number(tokens.get("output"), 0),
        whole_number(tokens.get("cached"), 0),
        whole_number(tokens.get("cacheWrite"), 0),
    )


def session_cost_usd(config: JsonObject) -> float:
    """Return the cost that earlier rounds counted for the session that a step continues."""
    cost = config.get("sessionCostUsd")
    if not isinstance(cost, int | float) or not is_amount(cost) or not config.get("sessionId"):
        return 0.0
    return float(cost)


def session_outputs(request: Request, answer: Answer) -> JsonObject:
    """Return the outputs about the session of an answer: its id, its tokens and its cost so far."""
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
    outputs: JsonObject = {"sessionId": answer.session, "sessionTokens": tokens}
    return {**outputs, "sessionCostUsd": cost} if cost else outputs
