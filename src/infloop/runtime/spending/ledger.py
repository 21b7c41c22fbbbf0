"""Every call of a provider is on the books before it is made, while it costs and when it is over.

`Metered` is put around each provider, so nodes do not know of it. Under a cap, a reservation is
durable before the provider is asked; what it reports to have cost is durable before anybody hears
of it, and the tokens a moment later; the call is settled before its end is heard of. Without a cap
money is written with the run's own events, at the latest with the end of the step, and what costs
nothing within a moment. So whatever a step said that it cost is in the ledger, and a call that a
crash cut off stays there with what it had cost by then.

Where the broker makes the provider's calls, what it saw counts too: of two counts the larger (see
`seen`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from infloop.errors import BudgetError, StepError
from infloop.lowlevel.uncancelled import wait_uncancelled
from infloop.policy.spending import (
    MAX_UNREPORTED_COSTS,
    Budget,
    is_amount,
    run_refusal,
    total_refusal,
    unknown_cost_refusal,
    unreported_cost_refusal,
    used_up,
    window_start,
)
from infloop.providers.base import NO_USAGE, Cost, Done, ProviderNotice, Usage
from infloop.runtime.spending.broker_usage import unreported
from infloop.store.interfaces.ledger import Bill, CallFilter, Cap, CapReached, NewCall
from infloop.store.interfaces.liveness import dead_owners

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from datetime import date

    from infloop.model.clock import Clock
    from infloop.policy.spending import Window
    from infloop.providers.base import AnswerPart, Provider, Request
    from infloop.runtime.spending.broker_usage import Seen
    from infloop.store.interfaces.ledger import CallLedger
    from infloop.store.interfaces.liveness import Liveness

CHARGE_SECONDS = 0.1
"""How long tokens may wait until they are written; money does not wait."""

_COUNTED = (Cost, Usage)


class Ledger:
    """What this process asks of providers, within what all processes together may spend."""

    def __init__(
        self,
        ledger: CallLedger,
        instance: str,
        clock: Clock,
        budget: Budget,
        clean: Callable[[str], str] = str,
    ) -> None:
        """Take who cleans the names of models: they are what the provider says."""
        self._clean = clean
        self._ledger = ledger
        self._instance = instance
        self._clock = clock
        self._began = clock.now_ms()
        self.budget = budget

    async def refuse_if_spent(self) -> None:
        """Raise BudgetError if all that may be spent in this window is spent."""
        if not self.budget.max_usd:
            return
        spent = await self._ledger.total(self._in_window())
        if used_up(spent.usd, self.budget.max_usd):
            raise BudgetError(total_refusal(spent.usd, self.budget))

    async def open_call(
        self, request: Request, provider: str, workflow_id: str, max_run_usd: float
    ) -> OpenCall:
        """Reserve a call; raise BudgetError if the run, or all runs together, have spent enough."""
        call = NewCall(
            request.run_id,
            workflow_id,
            request.path,
            request.attempt,
            provider,
            request.model or request.profile,
            request.kind,
            self._instance,
            self._clock.now_ms(),
        )
        if not (self.budget.max_usd or self.budget.require_known_cost or max_run_usd):
            return BookedCall(self._ledger, self._clock, self._clean, call)
        caps = self._caps(request.run_id, max_run_usd)
        reserving = asyncio.ensure_future(self._ledger.reserve(call, caps))
        cancelled = await wait_uncancelled(reserving)
        reserved = reserving.result()
        if cancelled:
            if not isinstance(reserved, CapReached):
                await ReservedCall(self._ledger, self._clock, self._clean, reserved).settle(
                    known=True
                )
            raise asyncio.CancelledError
        if isinstance(reserved, CapReached):
            raise BudgetError(self._refusal(reserved))
        return ReservedCall(self._ledger, self._clock, self._clean, reserved)

    async def refusal(self, run_id: str, max_run_usd: float, untold: int) -> str:
        """Return why a run may spend nothing more, or nothing.

        `untold` is how many answers have not told what they cost.
        """
        caps = self._caps(run_id, max_run_usd)
        if caps and untold > MAX_UNREPORTED_COSTS:
            return unreported_cost_refusal(untold)
        for cap in caps:
            spent = await self._ledger.total(cap.calls)
            if used_up(spent.usd, cap.limit_usd):
                return self._refusal(CapReached(cap, spent.usd))
        return ""

    def _caps(self, run_id: str, max_run_usd: float) -> list[Cap]:
        return [
            *([Cap(self._in_window(), self.budget.max_usd)] if self.budget.max_usd else ()),
            *([Cap(CallFilter(run_id=run_id), max_run_usd)] if max_run_usd else ()),
        ]

    def _in_window(self) -> CallFilter:
        if self.budget.window == "process":
            return CallFilter(instance=self._instance, since=self._began)
        return CallFilter(since=window_start_ms(self.budget.window, self._clock.now_ms()))

    def _refusal(self, used: CapReached) -> str:
        if used.cap.calls.run_id:
            return run_refusal(used.spent_usd, used.cap.limit_usd)
        return total_refusal(used.spent_usd, self.budget)


class OpenCall(ABC):
    """A call that adds up what it costs until it is settled."""

    def __init__(self, clock: Clock, clean: Callable[[str], str]) -> None:
        self._clock = clock
        self._clean = clean
        self._usd = self._seen_usd = 0.0
        self._usage = self._seen_usage = NO_USAGE
        self.settled = False
        self._reported = self._doubtful = False

    @abstractmethod
    async def _charge(self, *, money: bool) -> None:
        """Write what it has cost so far."""

    @abstractmethod
    async def _close(self, time: int, *, known: bool) -> None:
        """Write that it is over."""

    @property
    def cost_is_known(self) -> bool:
        """Whether every report of a cost, and there was one, could be counted."""
        return self._reported and not self._doubtful

    async def count(self, part: Cost | Usage) -> None:
        """Add what was reported."""
        if isinstance(part, Usage):
            self._usage += part
            await self._charge(money=False)
        elif part.usd is not None and is_amount(part.usd):
            self._usd += part.usd
            self._reported = True
            await self._charge(money=True)
        else:
            self._doubtful = True

    async def see(self, usage: Usage, usd: float) -> None:
        """Take note of what somebody else has counted by now; of two counts the larger counts."""
        if (usage, usd) != (self._seen_usage, self._seen_usd):
            self._seen_usage, self._seen_usd = usage, usd
            await self._charge(money=True)

    def unreported(self) -> tuple[Usage, float]:
        """Return what was seen beyond what was reported."""
        return self._seen_usage.since(self._usage), max(0.0, self._seen_usd - self._usd)

    async def settle(self, *, known: bool) -> None:
        """Close the call, once; `known` says whether all that it cost was reported."""
        if not self.settled:
            self.settled = True
            await self._close(self._clock.now_ms(), known=known)

    def _bill(self) -> Bill:
        used, usd = self._usage, 0.0
        if self._seen_usage is not NO_USAGE:
            tokens, usd = self.unreported()
            used = tokens + used
        model = self._clean(used.model)
        return Bill(
            self._usd + usd, used.input_tokens, used.output_tokens, used.cached_tokens, model
        )


class ReservedCall(OpenCall):
    """A call under a cap: an amount of money is durable before anybody hears of it."""

    def __init__(
        self,
        ledger: CallLedger,
        clock: Clock,
        clean: Callable[[str], str],
        id: int,  # noqa: A002  (its name)
    ) -> None:
        super().__init__(clock, clean)
        self._ledger = ledger
        self._id = id
        self._timer: asyncio.TimerHandle | None = None

    async def _charge(self, *, money: bool) -> None:
        if money:
            await asyncio.shield(self._write())
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHARGE_SECONDS, self._write)

    async def _close(self, time: int, *, known: bool) -> None:
        self._stop_waiting()
        await asyncio.shield(self._ledger.settle(self._id, self._bill(), known=known, time=time))

    def _write(self) -> asyncio.Future[None]:
        self._stop_waiting()
        return self._ledger.charge(self._id, self._bill())

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BookedCall(OpenCall):
    """A call that no cap depends on: written within a moment, with the run's own events.

    That it was made is in the journal before it is made, as the start of its step.
    """

    def __init__(
        self, ledger: CallLedger, clock: Clock, clean: Callable[[str], str], call: NewCall
    ) -> None:
        super().__init__(clock, clean)
        self._tracked = ledger.track(call)

    async def _charge(self, *, money: bool) -> None:
        self._tracked.charge(self._bill())

    async def _close(self, time: int, *, known: bool) -> None:
        self._tracked.settle(self._bill(), known=known, time=time)


class Metered:
    """A provider whose calls are on the books."""

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        workflow_id: str,
        max_run_usd: float,
        seen: Seen | None = None,
    ) -> None:
        """Take the provider, and what the broker sees of its calls where it makes them."""
        self._seen = seen
        self._provider = provider
        self._ledger = ledger
        self._workflow_id = workflow_id
        self._max_run_usd = max_run_usd

    @property
    def id(self) -> str:
        """The name that workflows use."""
        return self._provider.id

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Yield the parts of the answer; raise BudgetError if it may not be asked for."""
        call = await self._ledger.open_call(request, self.id, self._workflow_id, self._max_run_usd)
        if self._seen is not None:
            self._seen.begin(partial(self._book, self._seen, call, request.run_id))
        parts = cast("AsyncGenerator[AnswerPart]", self._provider.ask(request))
        asked = False
        try:
            try:
                async for part in parts:
                    asked = True
                    if isinstance(part, _COUNTED):
                        await call.count(part)
                    elif isinstance(part, Done) and not call.settled:
                        for more in await self._unreported(call):
                            yield more
                        await self._finish(call, request, part.error)
                    yield part
            finally:
                await parts.aclose()
            if not call.settled:
                for more in await self._unreported(call):
                    yield more
                await self._finish(call, request, "it ended without a result")
        except StepError:
            if not asked and not (self._seen and self._seen.anything):
                # It could not be asked at all, so it cost nothing.
                await call.settle(known=True)
            raise
        finally:
            if not call.settled:  # whoever is interrupted cannot say what it would have reported
                await self._settle_seen(call)

    async def _settle_seen(self, call: OpenCall) -> None:
        """Close a call with what was seen of it, if anybody could see it."""
        seen = self._seen
        try:
            if seen is not None:
                await _see(seen, call)
        finally:
            await call.settle(known=seen is not None and seen.is_complete)

    async def _book(self, seen: Seen, call: OpenCall, run_id: str) -> str:
        """Write down what was seen; return why nothing more may be spent, or nothing."""
        await _see(seen, call)
        return await self._ledger.refusal(run_id, self._max_run_usd, seen.untold)

    async def _unreported(self, call: OpenCall) -> list[AnswerPart]:
        """Count what the provider should have reported and did not; return it as its parts."""
        seen = self._seen
        if seen is None or not seen.anything:
            return []
        await _see(seen, call)
        tokens, usd = call.unreported()
        parts: list[AnswerPart] = (
            [ProviderNotice(unreported(tokens)), tokens] if tokens.has_tokens else []
        )
        if usd:
            parts.append(Cost(usd))
        if seen.untold or (seen.unpriced and (tokens.has_tokens or not call.cost_is_known)):
            parts.append(Cost(None))
        for part in parts:
            if isinstance(part, _COUNTED):
                await call.count(part)
        return parts

    async def _finish(self, call: OpenCall, request: Request, error: str) -> None:
        await call.settle(known=call.cost_is_known)
        if self._ledger.budget.require_known_cost and not call.cost_is_known:
            model = request.model or request.profile
            raise BudgetError(unknown_cost_refusal(self.id, model, error))


async def _see(seen: Seen, call: OpenCall) -> None:
    """Bring a call's bill up to what was seen."""
    await seen.count()
    await call.see(seen.usage, seen.usd)


async def abandon_dead_calls(ledger: CallLedger, liveness: Liveness, clock: Clock) -> None:
    """Close the calls of processes that died; they keep what they had cost by then."""
    for owner in await dead_owners(liveness, await ledger.owners()):
        await ledger.abandon(owner, clock.now_ms())


def window_start_ms(window: Window, now_ms: int) -> int:
    """Return when the window around `now_ms` began, by the local calendar; 0 if days do not say."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
    first = window_start(window, today)
    return 0 if first is None else midnight_ms(first)


def midnight_ms(day: date) -> int:
    """Return when a day of the local calendar began."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001  (local, by the next line)
    return int(midnight.astimezone().timestamp() * 1000)
