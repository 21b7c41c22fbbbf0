"""Amounts as whole billionths of a dollar, and calls that are written later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.policy.spending import MAX_USD
from infloop.store.encoding.values import replace_surrogates
from infloop.store.interfaces.ledger import Bill, NewCall, Spending, TrackedCall

if TYPE_CHECKING:
    from collections.abc import Callable

BILLION = 1_000_000_000
MOST_TOKENS = 1_000_000_000_000

CALL_COLUMNS = (
    "run, workflow, path, attempt, provider, model, kind, instance, reserved_at, cost,"
    " input_tokens, output_tokens, cached_tokens, cost_known, settled_at, outcome, held"
)


def call_row(
    call: NewCall, bill: Bill, *, known: bool, settled_at: int | None, hold_usd: float = 0.0
) -> tuple[object, ...]:
    """Return a row of the ledger, in the order of `CALL_COLUMNS`."""
    return (
        call.run_id,
        call.workflow_id,
        replace_surrogates(call.path),
        call.attempt,
        replace_surrogates(call.provider),
        replace_surrogates(bill.model or call.model),
        call.kind,
        call.instance,
        call.reserved_at,
        *amounts(bill),
        known,
        settled_at,
        None if settled_at is None else "settled",
        billionths(hold_usd),
    )


def amounts(bill: Bill) -> tuple[int, int, int, int]:
    """Return the cost and the tokens of a bill: input, output, cached."""
    return (
        billionths(bill.usd),
        min(bill.input_tokens, MOST_TOKENS),
        min(bill.output_tokens, MOST_TOKENS),
        min(bill.cached_tokens, MOST_TOKENS),
    )


def billionths(usd: float) -> int:
    """Return an amount as it is stored."""
    return round(min(usd, MAX_USD) * BILLION)


def spending(key: str, calls: int, cost: int, *rest: int) -> Spending:
    """Return what a group of calls cost; the columns are the fields of `Spending`."""
    return Spending(key, calls, cost / BILLION, *rest)


class LaterCall(TrackedCall):
    """A call whose latest values wait to be written; `id` is set when its row is inserted."""

    def __init__(self, call: NewCall, write_soon: Callable[[LaterCall], None]) -> None:
        self.call = call
        self.id: int | None = None
        self.unwritten = False
        self.bill = Bill()
        self._known = False
        self._settled_at: int | None = None
        self._write_soon = write_soon

    def charge(self, bill: Bill) -> None:
        self.bill = bill
        self._write_soon(self)

    def settle(self, bill: Bill, *, known: bool, time: int) -> None:
        self.bill = bill
        self._known = known
        self._settled_at = time
        self._write_soon(self)

    def take_change(self) -> CallChange:
        """Return the values to be written now; a later change is written again."""
        self.unwritten = False
        return CallChange(self, self.bill, self._known, self._settled_at)


class CallChange(NamedTuple):
    """The values of a call that are to be written."""

    call: LaterCall
    bill: Bill
    known: bool
    settled_at: int | None
