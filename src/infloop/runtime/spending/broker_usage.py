"""Tokens that the credential broker counted during a provider call, and what they cost.

The agent reports its usage itself; the broker's count is independent of that report.

Rules
  * The larger of the two counts is charged, never both. So an agent that reports too little, or
    ends before its report, spends nothing uncounted.
  * Tokens are priced by the public price list of the API's maker. A model without a price, or an
    answer without usage, makes the cost unknown.
  * Under a cap, each call through the broker first holds the most that it can cost. An answer with
    usage settles that. Without usage (the agent hung up, the answer broke off), the most that it
    can have cost is charged.
  * The built-in agent makes its calls itself. They are reserved and counted in the same way
    (`reserve`).
  * When a cap is spent, no further call passes and the step ends. While calls in progress hold the
    rest of a cap, further calls wait.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from infloop.errors import BudgetError
from infloop.policy.routes import FREE_ROUTES
from infloop.providers.base import NO_USAGE, Usage
from infloop.providers.http.dialects import dialect_of
from infloop.providers.http.usage_meter import UsageMeter
from infloop.providers.prices import Estimator, PriceList
from infloop.providers.request_bound import RequestBound, UnboundedRequest, request_bound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from infloop.egress.broker import AdmittedCall
    from infloop.model.provider import DialectName
    from infloop.policy.routes import Dialect, Route


class _Estimate(NamedTuple):
    """The most that a call can use, and what that costs."""

    bound: RequestBound
    usd: float


class Counter(Protocol):
    """Counts the usage of one answer, as `UsageMeter` does."""

    usage: Usage
    over: bool
    is_complete: bool

    def finish(self, *, sent: bool) -> None:
        """Note, once, that the answer ended or broke off."""


class CountedAnswer:
    """An answer whose usage the built-in agent reports."""

    def __init__(self, on_over: Callable[[], None]) -> None:
        self.usage = NO_USAGE
        self.over = self.is_complete = False
        self._on_over = on_over

    def settle(self, usage: Usage, *, complete: bool) -> None:
        """Set what it used; without `complete` the most that it can cost is charged."""
        if not self.over:
            self.usage, self.is_complete = usage, complete
            self.finish(sent=True)

    def finish(self, *, sent: bool) -> None:
        if not self.over:
            self.over = True
            self._on_over()


class _Answer(msgspec.Struct, eq=False):
    """One answer that passes the broker; without a limit it has no estimate."""

    meter: Counter
    prices: Estimator
    estimate: _Estimate | None = None

    def settle(self) -> _Settled:
        """Return what it cost, now that it is over."""
        used, meter = self.meter.usage, self.meter
        if self.estimate is None:
            usd = self.prices.price_list.price_usd(used, (used.model,)) if used.has_tokens else 0.0
            return _Settled(usd or 0.0, 0.0, is_priced=usd is not None)
        bound = self.estimate.bound
        listed = self.prices.price_list.price_usd(used, (used.model, bound.model))
        is_priced = not used.has_tokens or listed is not None
        usd = self.prices.price_usd(used, bound) if used.has_tokens else 0.0
        if meter.is_complete:
            return _Settled(usd, 0.0, is_priced=is_priced)
        worst = self.estimate.usd
        if used.input_tokens and not bound.rereads:
            longest = Usage(0, max(0, bound.output_tokens - used.output_tokens)) + used
            worst = min(worst, self.prices.price_usd(longest, bound))
        return _Settled(max(usd, worst), max(0.0, worst - usd), is_priced=is_priced)


class _Settled(NamedTuple):
    """What an answer is charged, and how much of that is not reported."""

    usd: float
    assumed_usd: float
    is_priced: bool


class BrokerUsage:
    """The usage of one provider call, which may be many calls through the broker.

    `unreported` counts the answers without usage, `assumed_usd` is what they are charged under a
    cap; `unpriced` means that a model has no price.
    """

    def __init__(self) -> None:
        self._charge: Callable[[], Awaitable[str]] | None = None
        self._hold: Callable[[float], Awaitable[str]] | None = None
        self._unpriced_usd_per_mtok = 0.0
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

    @cached_property
    def _admitting(self) -> asyncio.Lock:
        return asyncio.Lock()

    def begin(
        self,
        charge: Callable[[], Awaitable[str]],
        hold: Callable[[float], Awaitable[str]] | None = None,
        unpriced_usd_per_mtok: float = 0.0,
    ) -> None:
        """Start from zero.

        `charge` writes the ledger and returns why no call may follow. Under a cap, `hold` reserves
        money before a call and returns why it may not be made.
        """
        self._charge = charge
        self._hold = hold
        self._unpriced_usd_per_mtok = unpriced_usd_per_mtok
        self._reset()

    def _reset(self) -> None:
        self.usd = self.assumed_usd = 0.0
        self.has_calls = self.unpriced = False
        self.unreported = 0
        self._past = NO_USAGE
        self._answers: list[_Answer] = []
        self._released_usd = 0.0
        self._refused = ""

    @property
    def is_limited(self) -> bool:
        """Whether there is a cap."""
        return self._hold is not None

    @property
    def usage(self) -> Usage:
        """All tokens so far."""
        return sum((each.meter.usage for each in self._answers), self._past)

    @property
    def is_complete(self) -> bool:
        """Whether there were calls, all are over, and their cost is known."""
        is_open = any(not each.meter.over for each in self._answers)
        return self.has_calls and not (self.unreported or self.unpriced or is_open)

    async def admit(self, dialect: Dialect, route: Route, body: bytes | None) -> AdmittedCall:
        """Hold what a call can cost, as soon as there is room; raise CallRefused if it is refused.

        Calls are admitted in the order in which they arrive.
        """
        from infloop.egress.broker import AdmittedCall, CallRefused

        api = dialect_of(route.path)
        prices = Estimator(PriceList(dialect), self._unpriced_usd_per_mtok)
        if api is None:
            if self._hold is not None and route not in FREE_ROUTES:
                raise CallRefused(403, f"budget: it is not known what {route} costs")
            return AdmittedCall(None, body)
        if self._hold is None:
            return AdmittedCall(self._start_answer(api, prices), body)
        try:
            estimate = await asyncio.to_thread(_estimate, api, prices, body or b"")
        except UnboundedRequest as error:
            raise CallRefused(
                400, f"budget: there is a cost limit, and this call has no upper bound: {error}"
            ) from None
        async with self._admitting:
            if reason := self._refused or await self._hold(estimate.usd):
                self._refused = reason
                self._answer_over.set()
                raise CallRefused(402, reason)
            return AdmittedCall(self._start_answer(api, prices, estimate), estimate.bound.body)

    async def reserve(self, bound: RequestBound, prices: PriceList) -> CountedAnswer:
        """Hold what a request of the built-in agent can cost; raise BudgetError if it may not.

        What its earlier requests held is released first.
        """
        if reason := await self.refusal():
            raise BudgetError(reason)
        estimator = Estimator(prices, self._unpriced_usd_per_mtok)
        estimate: _Estimate | None = None
        if self._hold is not None:
            # In a thread: the first price takes half a second of reading.
            usd = await asyncio.to_thread(estimator.highest_price_usd, bound)
            if reason := await self._hold(usd):
                raise BudgetError(reason)
            estimate = _Estimate(bound, usd)
        counted = CountedAnswer(self._answer_over.set)
        self.has_calls = True
        self._answers.append(_Answer(counted, estimator, estimate))
        return counted

    def _start_answer(
        self, api: DialectName, prices: Estimator, estimate: _Estimate | None = None
    ) -> UsageMeter:
        meter = UsageMeter(api, self._answer_over.set)
        self.has_calls = True
        self._answers.append(_Answer(meter, prices, estimate))
        return meter

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

    def finish(self) -> None:
        """Note that the agent has ended, and every answer with it."""
        for each in self._answers:
            each.meter.finish(sent=True)

    async def update_cost(self) -> None:
        """Price the answers that are over."""
        async with self._pricing:
            over = [each for each in self._answers if each.meter.over]
            settled = await asyncio.to_thread(_settle_all, over) if over else []
            for each, (usd, assumed_usd, is_priced) in zip(over, settled, strict=True):
                self.usd += usd
                self.assumed_usd += assumed_usd
                self.unpriced = self.unpriced or not is_priced
                self.unreported += not each.meter.is_complete
                self._past += each.meter.usage
                self._released_usd += each.estimate.usd if each.estimate else 0.0
                self._answers.remove(each)

    def take_released(self) -> float:
        """Return what is no longer held since the last call."""
        released, self._released_usd = self._released_usd, 0.0
        return released


def unreported_message(tokens: Usage) -> str:
    """Return a message about an agent that used more than it reported."""
    return (
        f"[cost] the broker saw {tokens.input_tokens} tokens read and {tokens.output_tokens} "
        "written that the agent did not report; they count"
    )


def assumed_message(answers: int, usd: float) -> str:
    """Return a message about answers that are charged with the most that they can have cost."""
    return (
        f"[cost] {answers} answers ended before their usage was known; they count with the most "
        f"that they can have cost, ${usd:.4f} more than what was seen"
    )


def _estimate(api: DialectName, prices: Estimator, body: bytes) -> _Estimate:
    """Return the most that a call can cost. This blocks: the first price takes half a second."""
    bound = request_bound(api, body)
    return _Estimate(bound, prices.highest_price_usd(bound))


def _settle_all(answers: Sequence[_Answer]) -> list[_Settled]:
    """Return what answers cost. This blocks: the first price takes half a second to load."""
    return [each.settle() for each in answers]
