"""Records every call of a provider in the ledger, and enforces the caps.

`MeteredProvider` wraps each provider, so nodes do not know about it.

- Under a cap, a call is reserved durably before the provider is asked. A reported cost is durable
  before anybody sees it, and tokens shortly after. The call is settled before its end is seen.
- Without a cap, costs are written with the run's own events, at the latest with the end of the
  step. Calls that cost nothing are written shortly after.
- So the ledger has everything that a step said it cost. A call that a crash cut off stays in the
  ledger with its cost up to then.
- Under a cap, a request whose cost has a bound holds that bound: a call of an HTTP provider, and
  each request through the broker. It waits while others hold the rest of the cap. If it ends
  without a known cost, the bound is charged.
- If the broker makes the provider's calls, its count is charged too: the larger of the two counts
  (see `broker_usage`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from infloop.errors import BudgetError, StepError
from infloop.lowlevel.uncancelled import wait_uncancelled
from infloop.policy.spending import (
    Budget,
    is_amount,
    run_refusal,
    total_refusal,
    unknown_cost_refusal,
    used_up,
    window_start,
)
from infloop.providers.base import (
    NO_USAGE,
    Cost,
    Done,
    ProviderNotice,
    Usage,
    is_remote,
    uses_tools,
)
from infloop.runtime.spending.broker_usage import assumed_message, unreported_message
from infloop.store.interfaces.ledger import Bill, CallFilter, Cap, CapReached, NewCall
from infloop.store.interfaces.liveness import dead_owners

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
    from datetime import date

    from infloop.model.clock import Clock
    from infloop.policy.spending import Window
    from infloop.providers.base import AnswerPart, BoundedProvider, Provider, Request
    from infloop.runtime.spending.broker_usage import BrokerUsage
    from infloop.store.interfaces.ledger import CallLedger
    from infloop.store.interfaces.liveness import Liveness

CHARGE_SECONDS = 0.1
"""How long tokens may stay unwritten; money is written at once."""

ROOM_POLL_SECONDS = 0.25
"""How often to look whether another process has released what it held."""

_CHARGED = (Cost, Usage)
T = TypeVar("T")


class Ledger:
    """The provider calls of this process, within the caps of all processes together."""

    def __init__(
        self,
        ledger: CallLedger,
        instance: str,
        clock: Clock,
        budget: Budget,
        redact: Callable[[str], str] = str,
    ) -> None:
        """Take what redacts the names of models: providers choose them."""
        self._redact = redact
        self._ledger = ledger
        self._instance = instance
        self._clock = clock
        self._opened_at = clock.now_ms()
        self._released = asyncio.Event()
        self.budget = budget

    def act_as(self, instance: str) -> None:
        """Make calls under another id from now on: this process registered anew."""
        self._instance = instance

    async def check_budget(self) -> None:
        """Raise BudgetError if the budget of the current window is used up."""
        if not self.budget.max_usd:
            return
        spent = await self._ledger.total(self._in_window())
        if used_up(spent.usd, self.budget.max_usd):
            raise BudgetError(total_refusal(spent.usd, self.budget))

    async def open_call(
        self,
        request: Request,
        provider: str,
        workflow_id: str,
        max_run_usd: float,
        hold_usd: float = 0.0,
    ) -> OpenCall:
        """Reserve a call; raise BudgetError if the cap of the run or of all runs is used up.

        A call that holds money waits while other calls hold the rest of a cap.
        """
        call = NewCall(
            run_id=request.run_id,
            workflow_id=workflow_id,
            path=request.path,
            attempt=request.attempt,
            provider=provider,
            model=request.model or request.profile,
            kind=request.kind,
            instance=self._instance,
            reserved_at=self._clock.now_ms(),
        )
        if not (self.budget.max_usd or self.budget.require_known_cost or max_run_usd):
            return BookedCall(self._ledger, self._clock, self._redact, call)
        caps = self._caps(request.run_id, max_run_usd)
        reserved = await self._when_there_is_room(lambda: self._reserve(call, caps, hold_usd))
        if isinstance(reserved, CapReached):
            raise BudgetError(self._refusal(reserved))
        return reserved

    async def _reserve(
        self, call: NewCall, caps: Sequence[Cap], hold_usd: float
    ) -> ReservedCall | CapReached:
        reserving = asyncio.ensure_future(self._ledger.reserve(call, caps, hold_usd))
        cancelled = await wait_uncancelled(reserving)
        reserved = reserving.result()
        if not isinstance(reserved, CapReached):
            made = ReservedCall(
                self._ledger, self._clock, self._redact, reserved, hold_usd, self._wake_waiting
            )
            if not cancelled:
                return made
            await made.settle(known=True)
        elif not cancelled:
            return reserved
        raise asyncio.CancelledError

    def is_capped(self, max_run_usd: float) -> bool:
        """Whether the calls of a run with this limit are under a cap."""
        return bool(self.budget.max_usd or max_run_usd)

    async def hold(self, call: OpenCall, run_id: str, max_run_usd: float, usd: float) -> str:
        """Let a call hold money as soon as there is room; return why it may not, or ''."""
        caps = self._caps(run_id, max_run_usd)
        reached = await self._when_there_is_room(lambda: call.hold(usd, caps))
        return "" if reached is None else self._refusal(reached)

    async def _when_there_is_room(
        self, attempt: Callable[[], Awaitable[T | CapReached]]
    ) -> T | CapReached:
        """Repeat an attempt as long as only money that is held stands in its way."""
        while True:
            released = self._released
            result = await attempt()
            if not isinstance(result, CapReached):
                return result
            if used_up(result.spent_usd, result.cap.limit_usd):
                return result
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_POLL_SECONDS):
                    await released.wait()

    def _wake_waiting(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    async def refusal(self, run_id: str, max_run_usd: float) -> str:
        """Return why a run may spend nothing more, or an empty text."""
        for cap in self._caps(run_id, max_run_usd):
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
            return CallFilter(instance=self._instance, since=self._opened_at)
        return CallFilter(since=window_start_ms(self.budget.window, self._clock.now_ms()))

    def _refusal(self, used: CapReached) -> str:
        if used.cap.calls.run_id:
            return run_refusal(used.spent_usd, used.cap.limit_usd)
        return total_refusal(used.spent_usd, self.budget)


class OpenCall(ABC):
    """A call that adds up its cost until it is settled.

    The provider reports usage and cost. What the broker measured is kept apart. `bound_usd` is
    charged if the call ends without a known cost.
    """

    def __init__(self, clock: Clock, redact: Callable[[str], str], bound_usd: float = 0.0) -> None:
        self._clock = clock
        self._redact = redact
        self._bound_usd = bound_usd
        self._usd = self._measured_usd = 0.0
        self._usage = self._measured_usage = NO_USAGE
        self.settled = False
        self._is_reported = self._is_doubtful = False

    @abstractmethod
    async def hold(self, usd: float, caps: Sequence[Cap]) -> CapReached | None:
        """Hold money for a request, or return the cap that forbids it."""

    @abstractmethod
    async def _charge(self, *, money: bool, release_usd: float = 0.0) -> None:
        """Write what it has cost so far, and what it no longer holds."""

    @abstractmethod
    async def _close(self, time: int, *, known: bool) -> None:
        """Write that it is over."""

    @property
    def cost_is_known(self) -> bool:
        """Whether a cost was reported, and every report was a valid amount."""
        return self._is_reported and not self._is_doubtful

    async def add(self, part: Cost | Usage) -> None:
        """Add what the provider reported."""
        if isinstance(part, Usage):
            self._usage += part
            await self._charge(money=False)
        elif part.usd is not None and is_amount(part.usd):
            self._usd += part.usd
            self._is_reported = True
            await self._charge(money=True)
        else:
            self._is_doubtful = True

    async def set_measured(self, usage: Usage, usd: float, release_usd: float = 0.0) -> None:
        """Set what the broker measured so far; the larger of both counts is charged.

        `release_usd` is what requests held that are over.
        """
        if release_usd or (usage, usd) != (self._measured_usage, self._measured_usd):
            self._measured_usage, self._measured_usd = usage, usd
            await self._charge(money=True, release_usd=release_usd)

    def unreported(self) -> tuple[Usage, float]:
        """Return what was measured beyond what was reported."""
        return self._measured_usage.since(self._usage), max(0.0, self._measured_usd - self._usd)

    async def settle(self, *, known: bool) -> None:
        """Close the call, once; `known` says whether its whole cost is known."""
        if not self.settled:
            self.settled = True
            if not known:
                self._usd = max(self._usd, self._bound_usd)
            await self._close(self._clock.now_ms(), known=known)

    def bound_by_usage(self, usd_per_mtok: float) -> None:
        """Lower the bound to the price of the tokens that an unpriced model reported."""
        if self._usage.has_tokens and not self._is_doubtful:
            tokens = self._usage.input_tokens + self._usage.output_tokens
            self._bound_usd = min(self._bound_usd, tokens * usd_per_mtok / 1_000_000)

    def _bill(self) -> Bill:
        used, usd = self._usage, 0.0
        if self._measured_usage is not NO_USAGE:
            tokens, usd = self.unreported()
            used = tokens + used
        model = self._redact(used.model)
        return Bill(
            self._usd + usd, used.input_tokens, used.output_tokens, used.cached_tokens, model
        )


class ReservedCall(OpenCall):
    """A call under a cap: a cost is durable before anybody sees it."""

    def __init__(
        self,
        ledger: CallLedger,
        clock: Clock,
        redact: Callable[[str], str],
        id: int,  # noqa: A002  (the ledger's name for it)
        bound_usd: float,
        on_released: Callable[[], None],
    ) -> None:
        super().__init__(clock, redact, bound_usd)
        self._ledger = ledger
        self._id = id
        self._on_released = on_released
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, usd: float, caps: Sequence[Cap]) -> CapReached | None:
        holding = asyncio.ensure_future(self._ledger.hold(self._id, usd, caps))
        cancelled = await wait_uncancelled(holding)
        reached = holding.result()
        if cancelled:
            if reached is None:
                await self._charge(money=True, release_usd=usd)
            raise asyncio.CancelledError
        return reached

    async def _charge(self, *, money: bool, release_usd: float = 0.0) -> None:
        if money:
            await asyncio.shield(self._write(release_usd))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHARGE_SECONDS, self._write)

    async def _close(self, time: int, *, known: bool) -> None:
        self._cancel_timer()
        settling = self._ledger.settle(self._id, self._bill(), known=known, time=time)
        settling.add_done_callback(lambda _: self._on_released())
        await asyncio.shield(settling)

    def _write(self, release_usd: float = 0.0) -> asyncio.Future[None]:
        self._cancel_timer()
        writing = self._ledger.charge(self._id, self._bill(), release_usd)
        if release_usd:
            writing.add_done_callback(lambda _: self._on_released())
        return writing

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BookedCall(OpenCall):
    """A call without a cap: written shortly after, with the run's own events.

    The journal has the start of its step before the call is made.
    """

    def __init__(
        self, ledger: CallLedger, clock: Clock, redact: Callable[[str], str], call: NewCall
    ) -> None:
        super().__init__(clock, redact)
        self._tracked = ledger.track(call)

    async def hold(self, usd: float, caps: Sequence[Cap]) -> CapReached | None:
        return None

    async def _charge(self, *, money: bool, release_usd: float = 0.0) -> None:
        self._tracked.charge(self._bill())

    async def _close(self, time: int, *, known: bool) -> None:
        self._tracked.settle(self._bill(), known=known, time=time)


class MeteredProvider:
    """A provider whose calls are in the ledger."""

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        workflow_id: str,
        max_run_usd: float,
        broker_usage: BrokerUsage | None = None,
        bounded: BoundedProvider | None = None,
    ) -> None:
        """Take what knows the most that a call can cost, if there is such a bound."""
        self._broker_usage = broker_usage
        self._bounded = bounded
        self._provider = provider
        self._ledger = ledger
        self._workflow_id = workflow_id
        self._max_run_usd = max_run_usd

    @property
    def id(self) -> str:
        return self._provider.id

    @property
    def is_remote(self) -> bool:
        return is_remote(self._provider)

    @property
    def uses_tools(self) -> bool:
        return uses_tools(self._provider)

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Yield the parts of the answer; raise BudgetError if a cap is used up."""
        call = await self._open_call(request)
        if self._broker_usage is not None:
            self._begin(self._broker_usage, call, request.run_id)
        parts = cast("AsyncGenerator[AnswerPart]", self._provider.ask(request))
        answered = False
        try:
            try:
                async for part in parts:
                    answered = True
                    if isinstance(part, _CHARGED):
                        await call.add(part)
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
            if not answered and not (self._broker_usage and self._broker_usage.has_calls):
                # The provider was never reached, so it cost nothing.
                await call.settle(known=True)
            raise
        finally:
            if not call.settled:  # it was interrupted before it reported its cost
                await self._settle_measured(call)

    async def _open_call(self, request: Request) -> OpenCall:
        hold_usd = 0.0
        if self._bounded is not None and self._ledger.is_capped(self._max_run_usd):
            unpriced = self._ledger.budget.unpriced_usd_per_mtok
            highest = self._bounded.highest_cost_usd
            hold_usd = await asyncio.to_thread(highest, request, unpriced)
        return await self._ledger.open_call(
            request, self.id, self._workflow_id, self._max_run_usd, hold_usd
        )

    def _begin(self, usage: BrokerUsage, call: OpenCall, run_id: str) -> None:
        charge = partial(self._charge, usage, call, run_id)
        if self._ledger.is_capped(self._max_run_usd):
            hold = partial(self._ledger.hold, call, run_id, self._max_run_usd)
            usage.begin(charge, hold, self._ledger.budget.unpriced_usd_per_mtok)
        else:
            usage.begin(charge)

    async def _settle_measured(self, call: OpenCall) -> None:
        """Close a call with what the broker measured, if it could."""
        usage = self._broker_usage
        try:
            if usage is not None:
                usage.finish()
                await _measure(usage, call)
        finally:
            await call.settle(known=usage is not None and usage.is_complete)

    async def _charge(self, usage: BrokerUsage, call: OpenCall, run_id: str) -> str:
        """Charge what the broker measured; return why nothing more may be spent, or ''."""
        await _measure(usage, call)
        return await self._ledger.refusal(run_id, self._max_run_usd)

    async def _unreported(self, call: OpenCall) -> list[AnswerPart]:
        """Charge what the provider did not report; return it as parts of the answer."""
        usage = self._broker_usage
        if usage is None or not usage.has_calls:
            return []
        usage.finish()
        await _measure(usage, call)
        tokens, usd = call.unreported()
        parts: list[AnswerPart] = (
            [ProviderNotice(unreported_message(tokens)), tokens] if tokens.has_tokens else []
        )
        if usage.assumed_usd:
            message = assumed_message(usage.unreported, usage.assumed_usd)
            parts.append(ProviderNotice(message, is_warning=True))
        if usd:
            parts.append(Cost(usd))
        if usage.unreported or (usage.unpriced and (tokens.has_tokens or not call.cost_is_known)):
            parts.append(Cost(None))
        for part in parts:
            if isinstance(part, _CHARGED):
                await call.add(part)
        return parts

    async def _finish(self, call: OpenCall, request: Request, error: str) -> None:
        if not error:
            call.bound_by_usage(self._ledger.budget.unpriced_usd_per_mtok)
        await call.settle(known=call.cost_is_known)
        if self._ledger.budget.require_known_cost and not call.cost_is_known:
            model = request.model or request.profile
            raise BudgetError(unknown_cost_refusal(self.id, model, error))


async def _measure(usage: BrokerUsage, call: OpenCall) -> None:
    """Update a call with what the broker measured so far."""
    await usage.update_cost()
    await call.set_measured(usage.usage, usage.usd, usage.take_released())


async def abandon_dead_calls(ledger: CallLedger, liveness: Liveness, clock: Clock) -> None:
    """Close the calls of dead processes; they keep their cost up to then."""
    for owner in await dead_owners(liveness, await ledger.owners()):
        await ledger.abandon(owner, clock.now_ms())


def window_start_ms(window: Window, now_ms: int) -> int:
    """Return when the window around `now_ms` began, in local time; 0 for "process"."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
    first = window_start(window, today)
    return 0 if first is None else midnight_ms(first)


def midnight_ms(day: date) -> int:
    """Return the start of a day in local time."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001  (local, by the next line)
    return int(midnight.astimezone().timestamp() * 1000)
