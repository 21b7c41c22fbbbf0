"""Tokens that the credential broker counted during a provider call, and what they cost.

The agent reports its usage itself; the broker's count is independent of that report.

Rules
  * The larger of the two counts is charged, never both. So an agent that reports too little, or
    ends before its report, spends nothing uncounted.
  * Tokens are priced by the public price list of the API's maker. A model without a price, or an
    answer without usage, makes the cost unknown.
  * The ledger has the cost before the next call passes the broker. When a cap is used up, or too
    many answers came without usage, no further call passes and the step ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from infloop.providers.base import NO_USAGE, Usage
from infloop.providers.http.usage_meter import UsageMeter, usage_meter
from infloop.providers.prices import PriceList

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.policy.routes import Dialect, Route


@dataclass(slots=True)
class _Answer:
    """One answer that passes the broker, and the usage that has been priced so far."""

    meter: UsageMeter
    prices: PriceList
    priced: Usage = NO_USAGE
    usd: float | None = 0.0


class BrokerUsage:
    """The usage of one provider call, which may be many calls through the broker.

    `unreported` counts the answers without usage; `unpriced` means that a model has no price.
    """

    def __init__(self) -> None:
        self._charge: Callable[[], Awaitable[str]] | None = None
        self._reset()

    # Made when they are needed: most calls do not pass the broker.

    @cached_property
    def _answer_over(self) -> asyncio.Event:
        return asyncio.Event()

    @cached_property
    def _charging(self) -> asyncio.Lock:
        return asyncio.Lock()

    @cached_property
    def _pricing(self) -> asyncio.Lock:
        return asyncio.Lock()

    def begin(self, charge: Callable[[], Awaitable[str]]) -> None:
        """Start from zero; `charge` writes the ledger and returns why no call may follow."""
        self._charge = charge
        self._reset()

    def _reset(self) -> None:
        self.usd = self._past_usd = 0.0
        self.has_calls = self.unpriced = False
        self.unreported = 0
        self._past = NO_USAGE
        self._answers: list[_Answer] = []
        self._refused = ""

    @property
    def usage(self) -> Usage:
        """All tokens so far."""
        return sum((each.meter.usage for each in self._answers), self._past)

    @property
    def is_complete(self) -> bool:
        """Whether there were calls, all are over, and their cost is known."""
        is_open = any(not each.meter.over for each in self._answers)
        return self.has_calls and not (self.unreported or self.unpriced or is_open)

    def meter(self, dialect: Dialect, route: Route) -> UsageMeter | None:
        """Return what measures a call; None if it costs nothing."""
        found = usage_meter(route.path, self._answer_over.set)
        if found is not None:
            self.has_calls = True
            self._answers.append(_Answer(found, PriceList(dialect)))
        return found

    async def refusal(self) -> str:
        """Charge what was counted; return why no more calls may be made, or an empty text."""
        async with self._charging:  # so that each call sees what the one before it cost
            if not self._refused and self._charge:
                self._refused = await self._charge()
                if self._refused:
                    self._answer_over.set()
        return self._refused

    async def wait_until_spent(self) -> str:
        """Wait until no more calls may be made; return why."""
        while True:
            await self._answer_over.wait()
            self._answer_over.clear()
            if reason := await self.refusal():
                return reason

    async def update_cost(self) -> None:
        """Price the tokens that were counted since the last call."""
        async with self._pricing:
            fresh = [each for each in self._answers if each.meter.usage != each.priced]
            used = [each.meter.usage for each in fresh]
            prices = await asyncio.to_thread(_priced, fresh, used) if fresh else []
            for each, usage, usd in zip(fresh, used, prices, strict=True):
                each.priced, each.usd = usage, usd
            self.usd = self._past_usd + sum(each.usd or 0.0 for each in self._answers)
            self._sum_up()

    def _sum_up(self) -> None:
        """Add answers that are over to the totals, and drop them."""
        for each in self._answers:
            if each.meter.over and each.priced == each.meter.usage:
                self._past += each.priced
                self._past_usd += each.usd or 0.0
                self.unreported += not each.meter.is_complete
                self.unpriced = self.unpriced or each.usd is None
        self._answers = [
            each
            for each in self._answers
            if not (each.meter.over and each.priced == each.meter.usage)
        ]


def unreported_message(tokens: Usage) -> str:
    """Return a message about an agent that used more than it reported."""
    return (
        f"[cost] the broker saw {tokens.input_tokens} tokens read and {tokens.output_tokens} "
        "written that the agent did not report; they count"
    )


def _priced(answers: list[_Answer], used: list[Usage]) -> list[float | None]:
    """Return what answers cost. This blocks: the first price takes half a second to load."""
    return [
        each.prices.price_usd(usage, (usage.model,))
        for each, usage in zip(answers, used, strict=True)
    ]
