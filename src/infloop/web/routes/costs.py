"""What agents and judges have cost; an amount that is not known is never 0."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Query

from infloop.errors import UsageError
from infloop.runtime.spending.ledger import midnight_ms
from infloop.store.base import Calls, Grouping, Spending
from infloop.web.routing import Parts, Shape, router

ROUTER = router("costs")


class Tokens(Shape):
    """Tokens by what they were."""

    input: int
    output: int
    cached: int


class Cost(Shape):
    """What calls cost together; unless `complete`, it may have been more."""

    key: str
    calls: int
    cost_usd: float
    complete: bool
    unknown: int
    open: int
    abandoned: int
    tokens: Tokens


class Costs(Shape):
    """Sums by day, workflow, provider or run, and all of it."""

    by: Grouping
    rows: list[Cost]
    total: Cost


@ROUTER.get("/api/costs")
async def read_costs(
    parts: Parts,
    by: Grouping = "day",
    since: Annotated[date | None, Query(description="Calls on or after this day.")] = None,
) -> Costs:
    """Return what all calls of providers cost."""
    if since is not None and not 1971 <= since.year <= 9000:
        raise UsageError(f"{since} is no day on which infloop could have run")
    calls = Calls(since=midnight_ms(since) if since else 0)
    journal = parts.service.journal
    rows = [_cost(row) for row in await journal.spending(by, calls)]
    return Costs(by=by, rows=rows, total=_cost(await journal.spent(calls)))


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
