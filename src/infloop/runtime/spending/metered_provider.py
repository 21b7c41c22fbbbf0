"""A provider whose calls are in the ledger, with what it reports and what the broker counted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from infloop.errors import BudgetError, StepError
from infloop.policy.spending import unknown_cost_refusal
from infloop.providers.base import Cost, Done, ProviderNotice, Usage, is_remote, uses_tools
from infloop.runtime.spending.broker_usage import assumed_message, unreported_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from infloop.providers.base import AnswerPart, BoundedProvider, Provider, Request
    from infloop.runtime.spending.broker_usage import BrokerUsage
    from infloop.runtime.spending.ledger import Ledger, OpenCall

_CHARGED = (Cost, Usage)


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
