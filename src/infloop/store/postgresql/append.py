"""The fenced writes of a run: events, output and checkpoints.

A run's row has its epoch, its last sequence number and its totals. Each append changes that row, on
the condition that the epoch is still its own; so it is fenced in the transaction that stores it,
and a take-over by another process comes either before it or after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from infloop.model.events import Recorded, RunFinished
from infloop.model.values import JsonObject
from infloop.store.encoding.appends import ERROR_CHARACTERS, capped, check_order, write_refusal
from infloop.store.encoding.batches import Batch, encode_batches
from infloop.store.encoding.compression import pack
from infloop.store.encoding.large_texts import encode_scope
from infloop.store.postgresql.blobs import store_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.store.postgresql.connections import Connection

# Whether an entry of the queue waits for the end of a run, because its workflow is limited.
_AWAITED = (
    "EXISTS (SELECT 1 FROM queued WHERE state = 'waiting' AND max_concurrent > 0"
    " AND workflow = run.workflow_id)"
)


def _group_sql(*, ends: bool) -> bytes:
    """Return one statement for the appends of many runs, some of which may end with them.

    A run that is not in its answer got nothing. For the others it says whether the queue waits for
    their end.
    """
    given = "id, epoch, first_seq, last_seq, events, steps, output_bytes"
    columns, changed, awaited, more = "", "", "false", ""
    if ends:
        given += ", status, error, failed_step, finished_at, scope"
        columns = ", %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bytea[]"
        # What stays as it is touches no index.
        changed = """, status = coalesce(given.status, run.status),
        error = coalesce(given.error, run.error),
        failed_step = coalesce(given.failed_step, run.failed_step),
        finished_at = coalesce(given.finished_at, run.finished_at)"""
        awaited = f"given.status IS NOT NULL AND {_AWAITED}"
        more = """, answered AS (
    DELETE FROM stop_request USING owned JOIN given ON given.id = owned.id
    WHERE stop_request.run = owned.key AND given.status IS NOT NULL
), scoped AS (
    INSERT INTO scope
    SELECT key, NULL, given.scope FROM owned JOIN given ON given.id = owned.id
    WHERE given.scope IS NOT NULL
    ON CONFLICT (run) DO UPDATE SET blobs = excluded.blobs, body = excluded.body
)"""
    return f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
        %s::bigint[]{columns}
    ) AS given ({given})
), owned AS (
    UPDATE run SET last_seq = given.last_seq, events = run.events + given.events,
        steps = run.steps + given.steps, output_bytes = run.output_bytes + given.output_bytes
        {changed}
    FROM given
    WHERE run.id = given.id AND run.epoch = given.epoch AND run.last_seq < given.first_seq
        AND run.output_bytes + given.output_bytes <= %s
    RETURNING run.key, run.id, {awaited} AS awaited
), stored AS (
    INSERT INTO batch
    SELECT owned.key, first_seq, last_seq, events, steps, output_bytes, kind, correlation_id, NULL,
        body
    FROM unnest(
        %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
        %s::text[], %s::text[], %s::bytea[]
    ) AS row (id, first_seq, last_seq, events, steps, output_bytes, kind, correlation_id, body)
    JOIN owned ON owned.id = row.id
){more}
SELECT id, awaited FROM owned
""".encode()  # noqa: S608  (constants)


_STORE_GROUP, _STORE_GROUP_WITH_ENDS = _group_sql(ends=False), _group_sql(ends=True)

_INSERT_BATCHES = """
INSERT INTO batch
SELECT %s, * FROM unnest(
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::text[],
    %s::text[], %s::bytea[]
)
"""


class Append(msgspec.Struct):
    """Items of one run in sequence order, at least one.

    `repeated` says that an earlier attempt to store them may have succeeded.
    """

    run_id: str
    epoch: int
    items: Sequence[Recorded]
    scope: JsonObject | None = None
    repeated: bool = False

    @property
    def first_seq(self) -> int:
        """The first sequence number."""
        return self.items[0].seq

    @property
    def last_seq(self) -> int:
        """The last sequence number."""
        return self.items[-1].seq


class Totals(msgspec.Struct):
    """What batches add to a run."""

    events: int = 0
    steps: int = 0
    output_bytes: int = 0

    def add(self, batches: Sequence[Batch]) -> None:
        """Add batches."""
        for batch in batches:
            self.events += batch.events
            self.steps += batch.steps
            self.output_bytes += batch.output_bytes


class _End(msgspec.Struct, frozen=True):
    """How a run ends; None where it does not."""

    status: str | None = None
    error: str | None = None
    failed_step: str | None = None
    finished_at: int | None = None
    scope: bytes | None = None


class _RunPart(msgspec.Struct):
    epoch: int
    first_seq: int
    last_seq: int
    totals: Totals
    end: _End = _End()


class Group:
    """Appends that one statement can store, of as many runs as wanted."""

    def __init__(self, output_cap: int) -> None:
        self._output_cap = output_cap
        self._runs: dict[str, _RunPart] = {}
        self._rows: list[tuple[object, ...]] = []
        self._left_out: set[str] = set()

    def add(self, task: Append) -> bool:
        """Add an append; return False if it must be stored on its own, after this group.

        That goes for one with large texts, and for those of its run after it.
        """
        check_order(task.items)
        batches = encode_batches(task.items)
        end, is_large = _end_of(task)
        part = self._runs.get(task.run_id)
        if (
            task.run_id in self._left_out
            or is_large
            or any(batch.blobs is not None for batch in batches)
            or (part and (part.epoch != task.epoch or part.last_seq >= task.first_seq))
        ):
            self._left_out.add(task.run_id)
            return False
        if part is None:
            part = _RunPart(task.epoch, task.first_seq, task.last_seq, Totals())
            self._runs[task.run_id] = part
        part.last_seq = task.last_seq
        part.totals.add(batches)
        part.end = end
        self._rows += [(task.run_id, *batch_columns(batch)[:-2], batch.body) for batch in batches]
        return True

    async def store(self, connection: Connection) -> dict[str, bool]:
        """Store the group; return the runs for which that worked.

        Each with whether an entry of the queue waits for its end.
        """
        if not self._runs:
            return {}
        ends = any(part.end.status for part in self._runs.values())
        runs = [
            (
                run_id,
                part.epoch,
                part.first_seq,
                part.last_seq,
                *msgspec.structs.astuple(part.totals),
                *(msgspec.structs.astuple(part.end) if ends else ()),
            )
            for run_id, part in self._runs.items()
        ]
        values = [*_transposed(runs), self._output_cap, *_transposed(self._rows)]
        sql = _STORE_GROUP_WITH_ENDS if ends else _STORE_GROUP
        cursor = await connection.execute(sql, values, prepare=True)
        return dict(await cursor.fetchall())


def _end_of(task: Append) -> tuple[_End, bool]:
    """Return how an append ends its run, and whether its values have large texts."""
    finish = task.items[-1]
    event = finish.event
    if type(event) is not RunFinished:
        return _End(), False
    blobs, body, texts = encode_scope(task.scope) if task.scope is not None else (None, None, None)
    error = event.error[:ERROR_CHARACTERS]
    end = _End(event.status, error, event.failed_step, finish.time, body)
    return end, bool(blobs or texts)


def batch_columns(batch: Batch) -> tuple[object, ...]:
    """Return the columns of a row, after its run."""
    return (
        batch.first_seq,
        batch.last_seq,
        batch.events,
        batch.steps,
        batch.output_bytes,
        batch.kind,
        batch.correlation_id,
        batch.blobs,
        batch.body,
    )


def _transposed(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def append(connection: Connection, task: Append, output_cap: int) -> bool:
    """Store an append in the current transaction, if the run is still at its epoch.

    Returns whether an entry of the queue waits for the end of the run.
    """
    cursor = await connection.execute(
        "SELECT epoch, owner, last_seq, key, output_bytes FROM run WHERE id = %s FOR NO KEY UPDATE",
        (task.run_id,),
    )
    row = await cursor.fetchone()
    if row is None or row[0] != task.epoch or row[2] >= task.first_seq:
        if task.repeated and row and row[0] == task.epoch and row[2] >= task.last_seq:
            return False  # the first attempt was committed
        found = None if row is None else (row[0], row[1], row[2])
        raise write_refusal(task.run_id, task.epoch, task.first_seq, found)
    return await store_items(connection, row[3], row[4], task.items, task.scope, output_cap)


async def store_items(
    connection: Connection,
    key: int,
    output_bytes: int,
    items: Sequence[Recorded],
    scope: JsonObject | None,
    output_cap: int,
) -> bool:
    """Store items of a run that this transaction has locked and that has so much output so far.

    Returns whether an entry of the queue waits for the end of the run.
    """
    check_order(items)
    batches = encode_batches(items)
    if output_bytes + sum([batch.output_bytes for batch in batches]) > output_cap:
        batches = capped(items, output_bytes, output_cap)
    await insert_batches(connection, key, batches)
    totals = Totals()
    totals.add(batches)
    await connection.execute(
        "UPDATE run SET last_seq = %s, events = events + %s, steps = steps + %s,"
        " output_bytes = output_bytes + %s WHERE key = %s",
        (items[-1].seq, *msgspec.structs.astuple(totals), key),
    )
    if type(items[-1].event) is RunFinished:
        return await _settle(connection, key, items[-1], scope)
    return False


async def insert_batches(connection: Connection, key: int, batches: Sequence[Batch]) -> None:
    """Insert rows and their blobs."""
    if not batches:
        return
    for batch in batches:
        if batch.texts:
            await store_texts(connection, key, batch.texts)
    values: list[Any] = _transposed([batch_columns(batch) for batch in batches])
    await connection.execute(_INSERT_BATCHES, [key, *values])


async def _settle(
    connection: Connection, key: int, finish: Recorded, scope: JsonObject | None
) -> bool:
    """Write a run's end into its row and delete its stop request."""
    event = finish.event
    assert type(event) is RunFinished
    settled = await connection.execute(
        "WITH gone AS (DELETE FROM stop_request WHERE run = %(key)s)"  # noqa: S608  (constants)
        " UPDATE run SET status = %(status)s, error = %(error)s, failed_step = %(step)s,"
        f" finished_at = %(time)s WHERE key = %(key)s RETURNING {_AWAITED}".encode(),
        {
            "key": key,
            "status": event.status,
            "error": event.error[:ERROR_CHARACTERS],
            "step": event.failed_step,
            "time": finish.time,
        },
    )
    if scope is not None:
        blobs, body, texts = encode_scope(scope)
        await store_texts(connection, key, texts)
        await connection.execute(
            "INSERT INTO scope VALUES (%s, %s, %s)"
            " ON CONFLICT (run) DO UPDATE SET blobs = excluded.blobs, body = excluded.body",
            (key, blobs, body),
        )
    return await settled.fetchone() == (True,)


async def checkpoint(
    connection: Connection, run_id: str, epoch: int, seq: int, state: bytes
) -> None:
    """Store the run's state after `seq`, if the run is still at `epoch`."""
    stored = await connection.execute(
        "WITH owned AS (SELECT key FROM run WHERE id = %s AND epoch = %s FOR SHARE)"
        " INSERT INTO checkpoint SELECT key, %s, %s FROM owned"
        " ON CONFLICT (run, seq) DO UPDATE SET state = excluded.state",
        (run_id, epoch, seq, pack(state)),
    )
    if not stored.rowcount:
        cursor = await connection.execute(
            "SELECT epoch, owner, last_seq FROM run WHERE id = %s", (run_id,)
        )
        row = await cursor.fetchone()
        found = None if row is None else (row[0], row[1], row[2])
        raise write_refusal(run_id, epoch, seq, found)
