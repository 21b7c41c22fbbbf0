"""Whether more money may be spent.

Rules
  * A cap is used up when what was spent reaches it. What is being asked at that moment goes on, so
    the cap is passed by at most what was in flight.
  * Only what a provider reported is money. What it did not report is unknown, never nothing. Under
    a cap little may be unknown: whoever keeps answers from telling what they cost is stopped.
  * A window begins at midnight of a day of the local calendar: today, Monday, the first of the
    month. `process` has no beginning of its own: it is whatever this process has asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, TypeAlias

Window: TypeAlias = Literal["process", "day", "week", "month"]

MOST_UNTOLD = 10
"""So many answers in one step may keep to themselves what they cost, where there is a cap."""

MOST_USD = 1_000_000.0
"""More than any call costs; what claims to be more is no amount."""

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


@dataclass(frozen=True, slots=True)
class Budget:
    """What all runs together may spend; 0 means no limit."""

    max_usd: float = 0.0
    window: Window = "process"
    require_known_cost: bool = False


def window_began(window: Window, today: date) -> date | None:
    """Return the day on which the window that `today` lies in began, if days bound it."""
    match window:
        case "process":
            return None
        case "day":
            return today
        case "week":
            return today - timedelta(days=today.weekday())
        case "month":
            return today.replace(day=1)


def used_up(spent_usd: float, limit_usd: float) -> bool:
    """Say whether a cap leaves nothing to spend; 0 is no cap."""
    return 0 < limit_usd <= spent_usd


def is_amount(usd: float) -> bool:
    """Say whether a reported cost can be one; a refund or a number out of all bounds cannot."""
    return 0 <= usd <= MOST_USD


def total_refusal(spent_usd: float, budget: Budget) -> str:
    """Return why nothing more may be asked of any provider, and what to do."""
    return (
        f"budget: {_SPENDER[budget.window]} spent ${spent_usd:.4f}, and the limit is "
        f"${budget.max_usd:.4f} (INFLOOP_MAX_TOTAL_COST_USD); {_WAY_OUT[budget.window]} or raise "
        "the limit"
    )


def run_refusal(spent_usd: float, limit_usd: float) -> str:
    """Return why a run may ask nothing more, and what to do."""
    return (
        f"budget: the run spent ${spent_usd:.4f}, interrupted steps included, and its limit is "
        f"${limit_usd:.4f} (INFLOOP_MAX_RUN_COST_USD, or limits.maxCostUsd in the workflow)"
    )


def untold_refusal(answers: int) -> str:
    """Return why an agent may ask nothing more whose answers do not tell what they cost."""
    return (
        f"budget: {answers} answers to this agent broke off, or ended, without telling what they "
        "cost, so nobody can say whether the limit on cost is reached; let the agent ask for usage "
        "(stream_options.include_usage) and hear its answers out, or remove the limit"
    )


def unknown_cost_refusal(provider: str, model: str, error: str) -> str:
    """Return why a run ends when a call did not say what it cost, and what to do."""
    which = f"{provider!r} ({model})" if model else repr(provider)
    why = f" (it failed: {error})" if error else ""
    return (
        f"budget: provider {which} did not say what a call cost{why}, and "
        "INFLOOP_REQUIRE_KNOWN_COST is set; use a provider that reports cost, or unset it"
    )
