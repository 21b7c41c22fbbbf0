"""What agents and judges have cost. An amount that is not known is never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from infloop.application.models import Model
from infloop.application.runs.cost import Tokens
from infloop.errors import UsageError
from infloop.runtime.spending.ledger import midnight_ms, window_start_ms
from infloop.store.interfaces.ledger import CallFilter, Grouping

if TYPE_CHECKING:
    from datetime import date

    from infloop.application.resources import Resources
    from infloop.store.interfaces.ledger import Spending


class Cost(Model, kw_only=True):
    """What calls cost together. Unless `complete`, the true sum may be higher.

    Of `calls`, `unknown` ended without saying all that they cost, `open` still go on, and
    `abandoned` were cut off when their process died.
    """

    key: str
    calls: int
    cost_usd: float
    complete: bool
    unknown: int
    open: int
    abandoned: int
    tokens: Tokens


class CostLimit(Model, kw_only=True):
    """What all runs together may spend in the present window, and what is left."""

    limit_usd: float
    window: Literal["process", "day", "week", "month"]
    spent_usd: float
    left_usd: float


class CostReport(Model, kw_only=True):
    """Sums by day, workflow, provider or run, and the total.

    `limit` is null if there is none, or if it counts the calls of another process alone.
    """

    by: Grouping
    rows: list[Cost]
    total: Cost
    limit: CostLimit | None


class Costs:
    """Reads the ledger."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._ledger = resources.store.ledger

    async def report(self, by: Grouping = "day", since: date | None = None) -> CostReport:
        if since is not None and not 1971 <= since.year <= 9000:
            raise UsageError(f"{since} is no day on which infloop could have run")
        calls = CallFilter(since=midnight_ms(since) if since else 0)
        rows = [_cost(row) for row in await self._ledger.totals(by, calls)]
        total = _cost(await self._ledger.total(calls))
        return CostReport(by=by, rows=rows, total=total, limit=await self.limit())

    async def limit(self) -> CostLimit | None:
        """Return what all runs together may spend, if there is a limit that counts here."""
        budget, service = self._resources.budget, self._resources.driving()
        if not budget.max_usd:
            return None
        if budget.window != "process":
            since = window_start_ms(budget.window, self._resources.clock.now_ms())
            calls = CallFilter(since=since)
        elif service is not None:
            calls = CallFilter(instance=service.instance.id)
        else:
            return None
        spent = (await self._ledger.total(calls)).usd
        return CostLimit(
            limit_usd=budget.max_usd,
            window=budget.window,
            spent_usd=spent,
            left_usd=max(0.0, budget.max_usd - spent),
        )

    async def of_process(self, process_id: str) -> Cost:
        """Return what the runs of one process cost."""
        return _cost(await self._ledger.total(CallFilter(instance=process_id)))


def _cost(spending: Spending) -> Cost:
    return Cost(
        key=spending.key,
        calls=spending.calls,
        cost_usd=spending.usd,
        complete=not spending.incomplete,
        unknown=spending.unknown,
        open=spending.open,
        abandoned=spending.abandoned,
        tokens=Tokens(
            input=spending.input_tokens,
            output=spending.output_tokens,
            cached=spending.cached_tokens,
        ),
    )


__all__ = ["Cost", "CostReport", "Costs", "Grouping", "Tokens"]
