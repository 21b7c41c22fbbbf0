"""The ledger in the database: what every provider call cost.

Amounts are stored as whole billionths of a dollar, so that sums are exact. Whoever reserves or
holds money under a cap takes a lock until that is committed, so that no two processes see the same
rest of it. Calls without a cap, and charges, do not wait for that lock.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, LiteralString

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
    from collections.abc import Awaitable, Callable, Sequence

    from infloop.store.postgresql.connections import Connection
    from infloop.store.postgresql.readers import Readers
    from infloop.store.postgresql.writer import Writer

_QUARTER_HOUR_MS = 900_000

# Every time zone differs from UTC by whole quarter hours, so days are made of those.
_KEYS: dict[Grouping, LiteralString] = {
    "day": f"(reserved_at / {_QUARTER_HOUR_MS})::text",
    "workflow": "workflow",
    "provider": "provider",
    "run": "run",
}

_SUMS: LiteralString = """
count(*),
coalesce(sum(cost), 0)::bigint,
coalesce(sum(input_tokens), 0)::bigint,
coalesce(sum(output_tokens), 0)::bigint,
coalesce(sum(cached_tokens), 0)::bigint,
count(*) FILTER (WHERE outcome = 'settled' AND NOT cost_known),
count(*) FILTER (WHERE outcome IS NULL),
count(*) FILTER (WHERE outcome = 'abandoned')
"""

_WHERE: LiteralString = (
    "(%(run)s = '' OR run = %(run)s) AND (%(instance)s = '' OR instance = %(instance)s)"
    " AND (%(runs)s::text[] = '{}' OR run = ANY(%(runs)s)) AND reserved_at >= %(since)s"
    " AND (%(workflow)s = '' OR workflow = %(workflow)s)"
)

_INSERT = (
    f"INSERT INTO call ({CALL_COLUMNS})"  # noqa: S608  (constants)
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id"
).encode()


class PostgresqlLedger(CallLedger):
    """The calls of all processes that use the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        self._unwritten: list[LaterCall] = []

    async def reserve(
        self, call: NewCall, caps: Sequence[Cap] = (), hold_usd: float = 0.0
    ) -> int | CapReached:
        work = partial(_reserve, call=call, caps=caps, hold_usd=hold_usd)
        return await self._writer.submit(work, lock="caps" if caps else None)

    async def hold(self, call: int, usd: float, caps: Sequence[Cap]) -> CapReached | None:
        work = partial(_hold, call=call, usd=usd, caps=caps)
        return await self._writer.submit(work, lock="caps" if caps else None)

    def charge(self, call: int, bill: Bill, release_usd: float = 0.0) -> asyncio.Future[None]:
        return self._writer.submit(partial(_charge, call=call, bill=bill, release_usd=release_usd))

    def settle(self, call: int, bill: Bill, *, known: bool, time: int) -> asyncio.Future[None]:
        return self._writer.submit(partial(_settle, call=call, bill=bill, known=known, time=time))

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

    def _take_unwritten(self) -> Callable[[Connection], Awaitable[None]]:
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
        rows = await self._readers.run(_read_totals, by, calls or CallFilter())
        return _by_local_day(rows) if by == "day" else [spending(*row) for row in rows]


async def _reserve(
    connection: Connection, call: NewCall, caps: Sequence[Cap], hold_usd: float
) -> int | CapReached:
    reached = await _cap_reached(connection, caps, hold_usd)
    if reached is not None:
        return reached
    row = call_row(call, Bill(), known=False, settled_at=None, hold_usd=hold_usd)
    return await _insert(connection, row)


async def _hold(
    connection: Connection, call: int, usd: float, caps: Sequence[Cap]
) -> CapReached | None:
    reached = await _cap_reached(connection, caps, usd)
    if reached is None:
        held = await connection.execute(
            "UPDATE call SET held = held + %s WHERE id = %s AND outcome IS NULL",
            (billionths(usd), call),
        )
        if not held.rowcount:
            raise NotFound(f"the ledger has no open call {call}")
    return reached


async def _cap_reached(
    connection: Connection, caps: Sequence[Cap], hold_usd: float
) -> CapReached | None:
    """Return the cap that leaves nothing; first one that is spent, which does not pass."""
    full = None
    for cap in caps:
        if not cap.limit_usd:
            continue
        spent = await _sum(connection, "cost", cap.calls)
        if used_up(spent, cap.limit_usd):
            return CapReached(cap, spent)
        held = await _sum(connection, "held", cap.calls) if hold_usd and full is None else 0.0
        if used_up(spent + held, cap.limit_usd):
            full = CapReached(cap, spent, held)
    return full


async def _write_changes(connection: Connection, changes: Sequence[CallChange]) -> None:
    for tracked, bill, known, settled_at in changes:
        if tracked.id is not None and await _update(connection, tracked.id, bill):
            if settled_at is not None:
                await _close(connection, tracked.id, known=known, time=settled_at)
            continue
        row = call_row(tracked.call, bill, known=known, settled_at=settled_at)
        # A transaction that is rolled back leaves an id that no row has or will have.
        tracked.id = await _insert(connection, row)


async def _insert(connection: Connection, row: tuple[object, ...]) -> int:
    cursor = await connection.execute(_INSERT, row)
    inserted = await cursor.fetchone()
    assert inserted is not None
    return int(inserted[0])


async def _update(connection: Connection, call: int, bill: Bill) -> bool:
    found = await connection.execute(
        "UPDATE call SET cost = greatest(cost, %s), input_tokens = greatest(input_tokens, %s),"
        " output_tokens = greatest(output_tokens, %s),"
        " cached_tokens = greatest(cached_tokens, %s),"
        " model = coalesce(nullif(%s, ''), model) WHERE id = %s",
        (*amounts(bill), bill.model, call),
    )
    return found.rowcount > 0


async def _close(connection: Connection, call: int, *, known: bool, time: int) -> None:
    await connection.execute(
        "UPDATE call SET outcome = 'settled', cost_known = %s, settled_at = %s, held = 0"
        " WHERE id = %s",
        (known, time, call),
    )


async def _charge(connection: Connection, call: int, bill: Bill, release_usd: float = 0.0) -> None:
    if not await _update(connection, call, bill):
        raise NotFound(f"the ledger has no call {call}; its database was replaced or changed")
    if release_usd:
        await connection.execute(
            "UPDATE call SET held = greatest(0, held - %s) WHERE id = %s",
            (billionths(release_usd), call),
        )


async def _settle(connection: Connection, call: int, bill: Bill, *, known: bool, time: int) -> None:
    await _charge(connection, call, bill)
    await _close(connection, call, known=known, time=time)


async def _abandon(connection: Connection, instance: str, time: int) -> int:
    closed = await connection.execute(
        "UPDATE call SET outcome = 'abandoned', settled_at = %s, cost = cost + held, held = 0"
        " WHERE instance = %s AND outcome IS NULL",
        (time, instance),
    )
    return closed.rowcount


async def _read_owners(connection: Connection) -> list[str]:
    cursor = await connection.execute("SELECT DISTINCT instance FROM call WHERE outcome IS NULL")
    return [instance for (instance,) in await cursor.fetchall()]


async def _read_total(connection: Connection, calls: CallFilter) -> Spending:
    cursor = await connection.execute(
        f"SELECT {_SUMS} FROM call WHERE {_WHERE}",  # noqa: S608  (constants)
        _values(calls),
        prepare=False,
    )
    row = await cursor.fetchone()
    assert row is not None
    return spending("", *row)


async def _read_totals(
    connection: Connection, by: Grouping, calls: CallFilter
) -> list[tuple[str, int, int, int, int, int, int, int, int]]:
    cursor = await connection.execute(
        f"SELECT {_KEYS[by]}, {_SUMS} FROM call WHERE {_WHERE} GROUP BY 1 ORDER BY 1",  # noqa: S608
        _values(calls),
        prepare=False,
    )
    return await cursor.fetchall()


def _by_local_day(
    rows: Sequence[tuple[str, int, int, int, int, int, int, int, int]],
) -> list[Spending]:
    """Add up quarter hours to days of the local calendar."""
    days: dict[str, list[int]] = defaultdict(lambda: [0] * 8)
    for quarter, *numbers in rows:
        begin = datetime.fromtimestamp(int(quarter) * _QUARTER_HOUR_MS / 1000, UTC)
        day = days[str(begin.astimezone().date())]
        day[:] = [a + b for a, b in zip(day, numbers, strict=True)]
    return [spending(day, *numbers) for day, numbers in sorted(days.items())]


async def _sum(connection: Connection, column: LiteralString, calls: CallFilter) -> float:
    """Return the money in a column of the selected calls."""
    cursor = await connection.execute(
        f"SELECT coalesce(sum({column}), 0)::bigint FROM call"  # noqa: S608  (constants)
        f" WHERE {column} > 0 AND {_WHERE}",
        _values(calls),
        prepare=False,  # planned for these values: which index serves depends on them
    )
    row = await cursor.fetchone()
    assert row is not None
    return float(row[0] / BILLION)


def _values(calls: CallFilter) -> dict[str, object]:
    return {
        "run": calls.run_id,
        "runs": [*calls.run_ids],
        "workflow": calls.workflow_id,
        "instance": calls.instance,
        "since": calls.since,
    }
