"""What a run has cost, by the ledger. Every surface asks here, so that all of them agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import field

from infloop.application.models import Model
from infloop.store.interfaces.ledger import CallFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.store.interfaces.ledger import CallLedger, Spending


class Tokens(Model, kw_only=True):
    """Tokens by kind."""

    input: int
    output: int
    cached: int


def _no_tokens() -> Tokens:
    return Tokens(input=0, output=0, cached=0)


class RunCost(Model, kw_only=True):
    """What the calls of a run cost together; `usd` is null if there was none or nothing is known.

    Unless `complete`, the true sum may be higher. A run that was rewound has the cost of its own
    calls, not of those before the step at which it began.
    """

    usd: float | None = None
    complete: bool = True
    tokens: Tokens = field(default_factory=_no_tokens)


async def run_cost(ledger: CallLedger, run_id: str) -> RunCost:
    """Return what a run has cost so far."""
    return _cost_of(await ledger.total(CallFilter(run_id=run_id)))


async def run_costs(ledger: CallLedger, run_ids: Sequence[str]) -> dict[str, RunCost]:
    """Return what each of these runs has cost so far."""
    if not run_ids:
        return {}
    found = await ledger.totals("run", CallFilter(run_ids=tuple(run_ids)))
    return dict.fromkeys(run_ids, RunCost()) | {each.key: _cost_of(each) for each in found}


def _cost_of(total: Spending) -> RunCost:
    return RunCost(
        usd=total.known_usd,
        complete=not total.incomplete,
        tokens=Tokens(
            input=total.input_tokens, output=total.output_tokens, cached=total.cached_tokens
        ),
    )
