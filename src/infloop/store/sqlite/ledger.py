"""What every call of a provider cost, and how much is left to spend.

A call is reserved before the provider is asked, charged while it works and settled when it is over.
Rows are only added and amounts only grow, whoever writes last and however often; they outlive the
runs they belong to. Amounts are kept as whole billionths of a dollar, so that sums are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.policy.spending import MAX_USD, used_up
from infloop.store.base import Bill, Booking, Calls, Cap, Grouping, NewCall, Spending, UsedUp
from infloop.store.sqlite.encoding import mended_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

BILLION = 1_000_000_000
MOST_TOKENS = 1_000_000_000_000

_KEYS: dict[Grouping, str] = {
    "day": "date(reserved_at / 1000, 'unixepoch', 'localtime')",
    "workflow": "workflow",
    "provider": "provider",
    "run": "run",
}

_SUMS = """
count(*),
coalesce(sum(cost), 0),
coalesce(sum(input_tokens), 0),
coalesce(sum(output_tokens), 0),
coalesce(sum(cached_tokens), 0),
count(*) FILTER (WHERE outcome = 'settled' AND NOT cost_known),
count(*) FILTER (WHERE outcome IS NULL),
count(*) FILTER (WHERE outcome = 'abandoned')
"""

_INSERT = """
INSERT INTO call (run, workflow, path, attempt, provider, model, kind, instance, reserved_at, cost,
    input_tokens, output_tokens, cached_tokens, cost_known, settled_at, outcome)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def reserve(connection: sqlite3.Connection, call: NewCall, caps: Sequence[Cap]) -> int | UsedUp:
    """Store a call that is about to be made and return its id, unless a cap is used up."""
    for cap in caps:
        spent = _cost(connection, cap.calls)
        if used_up(spent, cap.limit_usd):
            return UsedUp(cap, spent)
    return _insert(connection, Booking(call))


def write_bookings(connection: sqlite3.Connection, bookings: Sequence[Booking]) -> None:
    """Store calls as they are now."""
    over: list[tuple[object, ...]] = []
    for booking in bookings:
        booking.waiting = False  # first: what changes from now on is written again
        if booking.id is not None and _update(connection, booking.id, booking.bill):
            if booking.settled_at is not None:
                _close(connection, booking.id, known=booking.known, time=booking.settled_at)
        elif booking.settled_at is None:
            booking.id = _insert(connection, booking)
        else:
            over.append(_row(booking))
    if over:
        connection.executemany(_INSERT, over)


def _insert(connection: sqlite3.Connection, booking: Booking) -> int:
    key = connection.execute(_INSERT, _row(booking)).lastrowid
    assert key is not None
    return key


def _row(booking: Booking) -> tuple[object, ...]:
    # Read once: the event loop goes on changing it.
    call, bill, settled_at = booking.call, booking.bill, booking.settled_at
    return (
        call.run_id,
        call.workflow_id,
        mended_text(call.path),
        call.attempt,
        mended_text(call.provider),
        mended_text(bill.model or call.model),
        call.kind,
        call.instance,
        call.reserved_at,
        *_amounts(bill),
        booking.known,
        settled_at,
        None if settled_at is None else "settled",
    )


def _amounts(bill: Bill) -> tuple[int, int, int, int]:
    return (
        round(min(bill.usd, MAX_USD) * BILLION),
        min(bill.input_tokens, MOST_TOKENS),
        min(bill.output_tokens, MOST_TOKENS),
        min(bill.cached_tokens, MOST_TOKENS),
    )


def _update(connection: sqlite3.Connection, call: int, bill: Bill) -> bool:
    found = connection.execute(
        "UPDATE call SET cost = max(cost, ?), input_tokens = max(input_tokens, ?),"
        " output_tokens = max(output_tokens, ?), cached_tokens = max(cached_tokens, ?),"
        " model = coalesce(nullif(?, ''), model) WHERE id = ?",
        (*_amounts(bill), mended_text(bill.model), call),
    ).rowcount
    return found > 0


def _close(connection: sqlite3.Connection, call: int, *, known: bool, time: int) -> None:
    connection.execute(
        "UPDATE call SET outcome = 'settled', cost_known = ?, settled_at = ? WHERE id = ?",
        (known, time, call),
    )


def charge(connection: sqlite3.Connection, call: int, bill: Bill) -> None:
    """Note what a call has cost so far; less than what is noted changes nothing."""
    if not _update(connection, call, bill):
        raise NotFound(f"the ledger has no call {call}; its database was replaced or changed")


def settle(
    connection: sqlite3.Connection, call: int, bill: Bill, *, known: bool, time: int
) -> None:
    """Note that a call is over and what it cost, and whether that is all of it."""
    charge(connection, call, bill)
    _close(connection, call, known=known, time=time)


def abandon(connection: sqlite3.Connection, instance: str, time: int) -> int:
    """Close the calls that a process left open when it died; return how many there were."""
    return connection.execute(
        "UPDATE call SET outcome = 'abandoned', settled_at = ?"
        " WHERE instance = ? AND outcome IS NULL",
        (time, instance),
    ).rowcount


def callers(connection: sqlite3.Connection) -> list[str]:
    """Return the processes that have calls open."""
    rows = connection.execute("SELECT DISTINCT instance FROM call WHERE outcome IS NULL")
    return [instance for (instance,) in rows]


def read_spent(connection: sqlite3.Connection, calls: Calls) -> Spending:
    """Return what all these calls cost together."""
    where, values = _conditions(calls)
    row = connection.execute(f"SELECT {_SUMS} FROM call WHERE {where}", values).fetchone()  # noqa: S608  (constants)
    return _spending("", *row)


def read_spending(connection: sqlite3.Connection, by: Grouping, calls: Calls) -> list[Spending]:
    """Return what these calls cost, in the order of the groups' names."""
    where, values = _conditions(calls)
    rows = connection.execute(
        f"SELECT {_KEYS[by]}, {_SUMS} FROM call WHERE {where} GROUP BY 1 ORDER BY 1",  # noqa: S608  (constants)
        values,
    )
    return [_spending(*row) for row in rows]


def _spending(key: str, calls: int, cost: int, *rest: int) -> Spending:
    return Spending(key, calls, cost / BILLION, *rest)


def _cost(connection: sqlite3.Connection, calls: Calls) -> float:
    where, values = _conditions(calls)
    (cost,) = connection.execute(
        f"SELECT coalesce(sum(cost), 0) FROM call WHERE {where}",  # noqa: S608  (constants)
        values,
    ).fetchone()
    return float(cost / BILLION)


def _conditions(calls: Calls) -> tuple[str, list[object]]:
    where, values = "TRUE", list[object]()
    for column, value in (("run = ?", calls.run_id), ("instance = ?", calls.instance)):
        if value:
            where += f" AND {column}"
            values.append(value)
    if calls.since:
        where += " AND reserved_at >= ?"
        values.append(calls.since)
    return where, values
