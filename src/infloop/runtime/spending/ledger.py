"""Records every call of a provider in the ledger, and enforces the caps.

`metered_provider` wraps each provider, so nodes do not know about it.

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
from typing import TYPE_CHECKING, TypeVar

from infloop.errors import BudgetError
from infloop.lowlevel.uncancelled import wait_uncancelled
from infloop.policy.spending import (
    Budget,
    is_amount,
    run_refusal,
    total_refusal,
    used_up,
    window_start,
)
from infloop.providers.base import NO_USAGE, Cost, Usage
from infloop.store.interfaces.ledger import Bill, CallFilter, Cap, CapReached, NewCall
from infloop.store.interfaces.liveness import dead_owners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import date

    from infloop.model.clock import Clock
    from infloop.policy.spending import Window
    from infloop.providers.base import Request
    from infloop.store.interfaces.ledger import CallLedger
    from infloop.store.interfaces.liveness import Liveness

CHARGE_SECONDS = 0.1
"""How long tokens may stay unwritten; money is written at once."""

ROOM_POLL_SECONDS = 0.25
"""How often to look whether another process has released what it held."""

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
