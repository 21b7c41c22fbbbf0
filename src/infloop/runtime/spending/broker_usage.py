"""What the broker saw while a provider was asked: tokens by the answers that went by, and money.

The agent's own report is the usual source, and the broker's count an independent one. Rules

  * Of two counts the larger counts, never both: an agent that reports less than was seen, dies
    before its report or is ended before it, spends nothing unseen.
  * Tokens are priced by the public list of the API's maker. What has no price, and an answer that
    did not tell its usage, makes the cost unknown.
  * What was seen is on the books before the next call goes through the broker. When that uses up a
    cap, there is no next call, and the step ends; so too when many answers did not tell.
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
    """One answer that goes by, and what of it has been priced."""

    meter: UsageMeter
    prices: PriceList
    priced: Usage = NO_USAGE
    usd: float | None = 0.0


class Seen:
    """What goes by at the broker during one call of a provider, which may be many calls there."""

    def __init__(self) -> None:
        self._book: Callable[[], Awaitable[str]] | None = None
        self._forget()

    # Made when they are needed: most calls do not go by at the broker.

    @cached_property
    def _over(self) -> asyncio.Event:
        return asyncio.Event()

    @cached_property
    def _booking(self) -> asyncio.Lock:
        return asyncio.Lock()

    @cached_property
    def _counting(self) -> asyncio.Lock:
        return asyncio.Lock()

    def begin(self, book: Callable[[], Awaitable[str]]) -> None:
        """Begin to count anew; `book` writes down what was seen and returns why it is enough."""
        self._book = book
        self._forget()

    def _forget(self) -> None:
        self.usd = self._past_usd = 0.0
        self.anything = self.unpriced = False
        self.untold = 0
        self._past = NO_USAGE
        self._answers: list[_Answer] = []
        self._refused = ""

    @property
    def usage(self) -> Usage:
        """All tokens by now."""
        return sum((each.meter.usage for each in self._answers), self._past)

    @property
    def is_complete(self) -> bool:
        """Whether there was something, and nothing about its cost is unknown."""
        open_yet = any(not each.meter.over for each in self._answers)
        return self.anything and not (self.untold or self.unpriced or open_yet)

    def meter(self, dialect: Dialect, route: Route) -> UsageMeter | None:
        """Return who listens to a call, if it can cost something."""
        found = usage_meter(route.path, self._over.set)
        if found is not None:
            self.anything = True
            self._answers.append(_Answer(found, PriceList(dialect)))
        return found

    async def refusal(self) -> str:
        """Write down what was seen; return why no more calls may be made, or nothing."""
        async with self._booking:  # one after the other: what one saw, the next finds written
            if not self._refused and self._book:
                self._refused = await self._book()
                if self._refused:
                    self._over.set()
        return self._refused

    async def spent(self) -> str:
        """Return why no more calls may be made, as soon as that is so."""
        while True:
            await self._over.wait()
            self._over.clear()
            if why := await self.refusal():
                return why

    async def count(self) -> None:
        """Bring the money up to date with the tokens."""
        async with self._counting:
            fresh = [each for each in self._answers if each.meter.usage != each.priced]
            used = [each.meter.usage for each in fresh]
            prices = await asyncio.to_thread(_priced, fresh, used) if fresh else []
            for each, usage, usd in zip(fresh, used, prices, strict=True):
                each.priced, each.usd = usage, usd
            self.usd = self._past_usd + sum(each.usd or 0.0 for each in self._answers)
            self._put_away()

    def _put_away(self) -> None:
        """Keep of answers that are over no more than what they add up to."""
        for each in self._answers:
            if each.meter.over and each.priced == each.meter.usage:
                self._past += each.priced
                self._past_usd += each.usd or 0.0
                self.untold += not each.meter.is_complete
                self.unpriced = self.unpriced or each.usd is None
        self._answers = [
            each
            for each in self._answers
            if not (each.meter.over and each.priced == each.meter.usage)
        ]


def unreported(tokens: Usage) -> str:
    """Return what to say of an agent that used more than it reported."""
    return (
        f"[cost] the broker saw {tokens.input_tokens} tokens read and {tokens.output_tokens} "
        "written that the agent did not report; they count"
    )


def _priced(answers: list[_Answer], used: list[Usage]) -> list[float | None]:
    """Return what answers cost by now; the first price ever takes half a second of reading."""
    return [
        each.prices.price_usd(usage, (usage.model,))
        for each, usage in zip(answers, used, strict=True)
    ]
