"""The ledger in the database: what every provider call cost.

Amounts are stored as whole billionths of a dollar, so that sums are exact.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.policy.spending import used_up
from infloop.store.encoding.money import (
    BILLION,
    CALL_COLUMNS,
    CallChange,
    LaterCall,
    amounts,
    billionths,
    call_row,
    spending,
)
from infloop.store.encoding.values import replace_surrogates
from infloop.store.interfaces.ledger import (
    Bill,
    CallFilter,
    CallLedger,
    Cap,
    CapReached,
    Grouping,
    NewCall,
    Spending,
    TrackedCall,
)

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Callable, Sequence

    from infloop.store.sqlite.access import Readers, Writer

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

_INSERT = (
    f"INSERT INTO call ({CALL_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  (constants)
)


class SqliteLedger(CallLedger):
    """The calls of all processes of this machine that open the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        self._unwritten: list[LaterCall] = []

    async def reserve(
        self, call: NewCall, caps: Sequence[Cap] = (), hold_usd: float = 0.0
    ) -> int | CapReached:
        work = partial(_reserve, call=call, caps=caps, hold_usd=hold_usd)
        return await self._writer.submit(work, small=not caps)

    async def hold(self, call: int, usd: float, caps: Sequence[Cap]) -> CapReached | None:
        return await self._writer.submit(partial(_hold, call=call, usd=usd, caps=caps))

    def charge(self, call: int, bill: Bill, release_usd: float = 0.0) -> asyncio.Future[None]:
        work = partial(_charge, call=call, bill=bill, release_usd=release_usd)
        return self._writer.submit(work, small=True)

    def settle(self, call: int, bill: Bill, *, known: bool, time: int) -> asyncio.Future[None]:
        work = partial(_settle, call=call, bill=bill, known=known, time=time)
        return self._writer.submit(work, small=True)

    def track(self, call: NewCall) -> TrackedCall:
        tracked = LaterCall(call, self._write_soon)
        self._write_soon(tracked)
        return tracked

    def _write_soon(self, tracked: LaterCall) -> None:
        urgent = tracked.bill.usd > 0
        if tracked.unwritten and not urgent:
            return  # its latest values are written when its turn comes
        if not tracked.unwritten:
            tracked.unwritten = True
            self._unwritten.append(tracked)
        self._writer.defer(self._take_unwritten, urgent=urgent)

    def _take_unwritten(self) -> Callable[[sqlite3.Connection], None]:
        changes = [each.take_change() for each in self._unwritten]
        self._unwritten = []
        return partial(_write_changes, changes=changes)

    async def abandon(self, instance: str, time: int) -> int:
        return await self._writer.submit(partial(_abandon, instance=instance, time=time))

    async def owners(self) -> list[str]:
        await self._writer.flush_deferred()
        return await self._readers.run(_read_owners)

    async def total(self, calls: CallFilter | None = None) -> Spending:
        await self._writer.flush_deferred()
        return await self._readers.run(_read_total, calls or CallFilter())

    async def totals(self, by: Grouping, calls: CallFilter | None = None) -> list[Spending]:
        await self._writer.flush_deferred()
        return await self._readers.run(_read_totals, by, calls or CallFilter())


def _reserve(
    connection: sqlite3.Connection, call: NewCall, caps: Sequence[Cap], hold_usd: float
) -> int | CapReached:
    reached = _cap_reached(connection, caps, hold_usd)
    if reached is not None:
        return reached
    return _insert(
        connection, call_row(call, Bill(), known=False, settled_at=None, hold_usd=hold_usd)
    )


def _hold(
    connection: sqlite3.Connection, call: int, usd: float, caps: Sequence[Cap]
) -> CapReached | None:
    reached = _cap_reached(connection, caps, usd)
    if reached is None:
        held = connection.execute(
            "UPDATE call SET held = held + ? WHERE id = ? AND outcome IS NULL",
            (billionths(usd), call),
        ).rowcount
        if not held:
            raise NotFound(f"the ledger has no open call {call}")
    return reached


def _cap_reached(
    connection: sqlite3.Connection, caps: Sequence[Cap], hold_usd: float
) -> CapReached | None:
    """Return the cap that leaves nothing; first one that is spent, which does not pass."""
    full = None
    for cap in caps:
        if not cap.limit_usd:
            continue
        spent = _cost(connection, cap.calls)
        if used_up(spent, cap.limit_usd):
            return CapReached(cap, spent)
        held = _held(connection, cap.calls) if hold_usd and full is None else 0.0
        if used_up(spent + held, cap.limit_usd):
            full = CapReached(cap, spent, held)
    return full


def _write_changes(connection: sqlite3.Connection, changes: Sequence[CallChange]) -> None:
    settled: list[tuple[object, ...]] = []
    for tracked, bill, known, settled_at in changes:
        if tracked.id is not None and _update(connection, tracked.id, bill):
            if settled_at is not None:
                _close(connection, tracked.id, known=known, time=settled_at)
            continue
        row = call_row(tracked.call, bill, known=known, settled_at=settled_at)
        if settled_at is None:
            tracked.id = _insert(connection, row)
        else:
            settled.append(row)
    if settled:
        connection.executemany(_INSERT, settled)


def _insert(connection: sqlite3.Connection, row: tuple[object, ...]) -> int:
    key = connection.execute(_INSERT, row).lastrowid
    assert key is not None
    return key


def _update(connection: sqlite3.Connection, call: int, bill: Bill) -> bool:
    found = connection.execute(
        "UPDATE call SET cost = max(cost, ?), input_tokens = max(input_tokens, ?),"
        " output_tokens = max(output_tokens, ?), cached_tokens = max(cached_tokens, ?),"
        " model = coalesce(nullif(?, ''), model) WHERE id = ?",
        (*amounts(bill), replace_surrogates(bill.model), call),
    ).rowcount
    return found > 0


def _close(connection: sqlite3.Connection, call: int, *, known: bool, time: int) -> None:
    connection.execute(
        "UPDATE call SET outcome = 'settled', cost_known = ?, settled_at = ?, held = 0"
        " WHERE id = ?",
        (known, time, call),
    )


def _charge(
    connection: sqlite3.Connection, call: int, bill: Bill, release_usd: float = 0.0
) -> None:
    if not _update(connection, call, bill):
        raise NotFound(f"the ledger has no call {call}; its database was replaced or changed")
    if release_usd:
        connection.execute(
            "UPDATE call SET held = max(0, held - ?) WHERE id = ?",
            (billionths(release_usd), call),
        )


def _settle(
    connection: sqlite3.Connection, call: int, bill: Bill, *, known: bool, time: int
) -> None:
    _charge(connection, call, bill)
    _close(connection, call, known=known, time=time)


def _abandon(connection: sqlite3.Connection, instance: str, time: int) -> int:
    return connection.execute(
        "UPDATE call SET outcome = 'abandoned', settled_at = ?, cost = cost + held, held = 0"
        " WHERE instance = ? AND outcome IS NULL",
        (time, instance),
    ).rowcount


def _read_owners(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT DISTINCT instance FROM call WHERE outcome IS NULL")
    return [instance for (instance,) in rows]


def _read_total(connection: sqlite3.Connection, calls: CallFilter) -> Spending:
    where, values = _conditions(calls)
    row = connection.execute(f"SELECT {_SUMS} FROM call WHERE {where}", values).fetchone()  # noqa: S608  (constants)
    return spending("", *row)


def _read_totals(connection: sqlite3.Connection, by: Grouping, calls: CallFilter) -> list[Spending]:
    where, values = _conditions(calls)
    rows = connection.execute(
        f"SELECT {_KEYS[by]}, {_SUMS} FROM call WHERE {where} GROUP BY 1 ORDER BY 1",  # noqa: S608  (constants)
        values,
    )
    return [spending(*row) for row in rows]


def _cost(connection: sqlite3.Connection, calls: CallFilter) -> float:
    where, values = _conditions(calls)
    (cost,) = connection.execute(
        f"SELECT coalesce(sum(cost), 0) FROM call WHERE {where}",  # noqa: S608  (constants)
        values,
    ).fetchone()
    return float(cost / BILLION)


def _held(connection: sqlite3.Connection, calls: CallFilter) -> float:
    where, values = _conditions(calls)
    (held,) = connection.execute(
        f"SELECT coalesce(sum(held), 0) FROM call WHERE held > 0 AND {where}",  # noqa: S608  (constants)
        values,
    ).fetchone()
    return float(held / BILLION)


def _conditions(calls: CallFilter) -> tuple[str, list[object]]:
    where, values = "TRUE", list[object]()
    for condition, value in (
        ("run = ?", calls.run_id),
        ("workflow = ?", calls.workflow_id),
        ("instance = ?", calls.instance),
    ):
        if value:
            where += f" AND {condition}"
            values.append(value)
    if calls.run_ids:
        where += f" AND run IN ({', '.join('?' * len(calls.run_ids))})"
        values.extend(calls.run_ids)
    if calls.since:
        where += " AND reserved_at >= ?"
        values.append(calls.since)
    return where, values
