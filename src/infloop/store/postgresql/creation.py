"""Creates a run, or forks one from another run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from infloop.errors import NotFound, StoreError
from infloop.model.values import compact_json
from infloop.store.encoding.appends import check_first
from infloop.store.encoding.batches import encode_batches
from infloop.store.encoding.compression import pack
from infloop.store.interfaces.run_log import NewRun, Ownership, definition_hash
from infloop.store.postgresql.append import batch_columns, insert_batches, store_items
from infloop.store.postgresql.blobs import decode_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.events import Recorded
    from infloop.model.values import JsonObject
    from infloop.store.encoding.batches import Batch
    from infloop.store.postgresql.connections import Connection

FIRST_EPOCH = 1

_INSERT_RUN = """
WITH needed AS (
    INSERT INTO definition VALUES (%(definition)s, %(body)s) ON CONFLICT DO NOTHING
), created AS (
    INSERT INTO run (id, workflow_id, workflow_name, definition, correlation_id, cause, owner,
        epoch, status, started_at, last_seq, events, steps, output_bytes)
    VALUES (%(id)s, %(workflow_id)s, %(workflow_name)s, %(definition)s, %(correlation_id)s,
        %(cause)s, %(owner)s, %(epoch)s, 'running', %(started_at)s, %(last_seq)s, %(events)s,
        %(steps)s, %(output_bytes)s)
    RETURNING key
), stored AS (
    INSERT INTO batch SELECT created.key, row.* FROM created, unnest(
        %(c0)s::bigint[], %(c1)s::bigint[], %(c2)s::bigint[], %(c3)s::bigint[], %(c4)s::bigint[],
        %(c5)s::text[], %(c6)s::text[], %(c7)s::text[], %(c8)s::bytea[]
    ) AS row
)
SELECT key FROM created
"""
_COLUMNS = 9


async def create_run(
    connection: Connection,
    run: NewRun,
    items: Sequence[Recorded],
    scope: JsonObject | None,
    output_cap: int,
) -> bool:
    """Store a run and its first events, at `FIRST_EPOCH`.

    Returns whether it has ended with them and an entry of the queue waits for that.
    """
    definition = check_first(run, items[0])
    if len(items) == 1:
        (batch,) = encode_batches(items)
        if batch.blobs is None:  # as nearly always: one statement does it
            await _insert_run(connection, run, definition, batch)
            return False
    key = await _insert_run(connection, run, definition)
    return await store_items(connection, key, 0, items, scope, output_cap)


async def fork(connection: Connection, run_id: str, before_seq: int, run: NewRun) -> Ownership:
    """Store `run` with copies of another run's items and checkpoints below `before_seq`.

    With another definition it has no checkpoints: they hold what follows by the old one.
    """
    cursor = await connection.execute(
        "SELECT key, definition FROM run WHERE id = %s FOR SHARE", (run_id,)
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r} to fork")
    source: int = row[0]
    definition = definition_hash(run.definition)
    key = await _insert_run(connection, run, definition)
    await connection.execute(
        "INSERT INTO blob_use SELECT %s, hash FROM blob_use WHERE run = %s", (key, source)
    )
    await connection.execute(
        "INSERT INTO batch SELECT %s, first_seq, last_seq, events, steps, output_bytes, kind, %s,"
        " blobs, body FROM batch WHERE run = %s AND last_seq < %s",
        (key, run.correlation_id, source, before_seq),
    )
    await _copy_partial_batch(connection, source, key, before_seq, run)
    if definition == row[1]:
        await connection.execute(
            "INSERT INTO checkpoint SELECT %s, seq, state FROM checkpoint"
            " WHERE run = %s AND seq < %s",
            (key, source, before_seq),
        )
    last_seq = await _add_up(connection, key)
    if last_seq == 0:
        raise StoreError(f"run {run_id!r} has nothing before sequence {before_seq} to fork")
    return Ownership(FIRST_EPOCH, last_seq)


async def _add_up(connection: Connection, key: int) -> int:
    """Write the totals of a run's batches into its row; return the last sequence number."""
    cursor = await connection.execute(
        "UPDATE run SET last_seq = total.last_seq, events = total.events, steps = total.steps,"
        " output_bytes = total.output_bytes FROM (SELECT coalesce(max(last_seq), 0) AS last_seq,"
        " coalesce(sum(events), 0) AS events, coalesce(sum(steps), 0) AS steps,"
        " coalesce(sum(output_bytes), 0) AS output_bytes FROM batch WHERE run = %s) AS total"
        " WHERE key = %s RETURNING total.last_seq",
        (key, key),
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _insert_run(
    connection: Connection, run: NewRun, definition: str, first: Batch | None = None
) -> int:
    """Insert a run, with its first batch if that is given; return its key."""
    columns = [[value] for value in batch_columns(first)] if first else [[]] * _COLUMNS
    try:
        cursor = await connection.execute(
            _INSERT_RUN,
            {
                "definition": definition,
                "body": pack(run.definition),
                "id": run.id,
                "workflow_id": run.workflow_id,
                "workflow_name": run.workflow_name,
                "correlation_id": run.correlation_id,
                "cause": compact_json(run.cause),
                "owner": run.owner,
                "epoch": FIRST_EPOCH,
                "started_at": run.started_at,
                "last_seq": first.last_seq if first else 0,
                "events": first.events if first else 0,
                "steps": first.steps if first else 0,
                "output_bytes": first.output_bytes if first else 0,
                **{f"c{number}": column for number, column in enumerate(columns)},
            },
        )
    except psycopg.errors.UniqueViolation as error:
        raise StoreError(
            f"a run {run.id!r} exists already; every run needs an id of its own"
        ) from error
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _copy_partial_batch(
    connection: Connection, source: int, key: int, before_seq: int, run: NewRun
) -> None:
    """Copy the beginning of the batch that contains `before_seq`, if there is one."""
    cursor = await connection.execute(
        "SELECT first_seq, kind, %s, blobs, body FROM batch"
        " WHERE run = %s AND first_seq < %s AND last_seq >= %s",
        (run.correlation_id, source, before_seq, before_seq),
        binary=True,
    )
    row = await cursor.fetchone()
    if row is not None:
        items = await decode_row(connection, run.id, row)
        kept = [item for item in items if item.seq < before_seq]
        await insert_batches(connection, key, encode_batches(kept))
