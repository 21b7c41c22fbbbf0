"""Decides whether more money may be spent.

Rules
  * A cap is reached when the money spent reaches it.
  * Under a cap, a request whose cost has a bound holds that bound until its cost is known. It is
    made only while spent and held money together are below the cap. So the cap is exceeded by at
    most the bound of one request.
  * An agent that is a program and has its own key reports its cost itself. It is stopped at its
    next step.
  * An unreported cost is unknown, not zero. A request that held a bound is charged the bound.
  * A window starts at midnight of the local calendar: today, Monday, or the first of the month.
    The window `process` covers the calls of this process.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal, TypeAlias, assert_never

import msgspec

Window: TypeAlias = Literal["process", "day", "week", "month"]

MAX_USD = 1_000_000.0
"""More than any call costs; larger reported costs are ignored."""

_SPENDER = {
    "process": "all runs of this process together have",
    "day": "all runs of today together have",
    "week": "all runs since Monday together have",
    "month": "all runs of this month together have",
}
_WAY_OUT = {
    "process": "start infloop again",
    "day": "wait for tomorrow",
    "week": "wait for Monday",
    "month": "wait for the next month",
}


class Budget(msgspec.Struct, frozen=True):
    """The cost limit of all runs together; 0 means no limit.

    `unpriced_usd_per_mtok` is the price of a million tokens of a model that is on no price list,
    for limits.
    """

    max_usd: float = 0.0
    window: Window = "process"
    require_known_cost: bool = False
    unpriced_usd_per_mtok: float = 100.0


def window_start(window: Window, today: date) -> date | None:
    """Return the day on which the window of `today` started; None for `process`."""
    match window:
        case "process":
            return None
        case "day":
            return today
        case "week":
            return today - timedelta(days=today.weekday())
        case "month":
            return today.replace(day=1)
        case _:
            assert_never(window)


def used_up(spent_usd: float, limit_usd: float) -> bool:
    """Tell whether a cap is reached; 0 is no cap."""
    return 0 < limit_usd <= spent_usd


def is_amount(usd: float) -> bool:
    """Tell whether a reported cost is plausible: not negative, not out of range."""
    return 0 <= usd <= MAX_USD


def total_refusal(spent_usd: float, budget: Budget) -> str:
    """Return why no provider may be called any more, and what to do."""
    return (
        f"budget: {_SPENDER[budget.window]} spent ${spent_usd:.4f}, and the limit is "
        f"${budget.max_usd:.4f} (INFLOOP_MAX_TOTAL_COST_USD); {_WAY_OUT[budget.window]} or raise "
        "the limit"
    )


def run_refusal(spent_usd: float, limit_usd: float) -> str:
    """Return why a run may make no more calls, and what to do."""
    return (
        f"budget: the run spent ${spent_usd:.4f}, interrupted steps included, and its limit is "
        f"${limit_usd:.4f} (INFLOOP_MAX_RUN_COST_USD, or limits.maxCostUsd in the workflow)"
    )


def unknown_cost_refusal(provider: str, model: str, error: str) -> str:
    """Return why a run fails when a call did not report its cost, and what to do."""
    which = f"{provider!r} ({model})" if model else repr(provider)
    why = f" (it failed: {error})" if error else ""
    return (
        f"budget: provider {which} did not report the cost of a call{why}, and "
        "INFLOOP_REQUIRE_KNOWN_COST is set; use a provider that reports cost, or unset it"
    )
