"""The fenced writes of a run: events, output and checkpoints."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from infloop.model.events import Recorded, RunFinished
from infloop.store.encoding.appends import ERROR_CHARACTERS, capped, check_order, write_refusal
from infloop.store.encoding.batches import Batch, encode_batches
from infloop.store.encoding.compression import pack
from infloop.store.encoding.large_texts import encode_scope
from infloop.store.encoding.values import replace_surrogates
from infloop.store.sqlite.blobs import store_texts
from infloop.store.sqlite.listing import LAST_SEQ
from infloop.store.sqlite.row_ids import row_id

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from infloop.errors import StoreError
    from infloop.model.values import JsonObject

_ROWS_AT_ONCE = 100

# The totals of a run are in its last batch and not in its row, so that an append changes one page
# of the file and not two. The transaction is a write transaction already (BEGIN IMMEDIATE), so
# no other process can change the epoch in between.
_TOTALS = """
SELECT run.key, max(run.last_seq, tail.last_seq), tail.events, tail.steps, tail.output_bytes
FROM run JOIN stretch AS tail ON tail.id BETWEEN run.key << 32 AND run.key << 32 | 0xFFFFFFFF
WHERE run.id = ? AND run.epoch = ?
ORDER BY tail.id DESC LIMIT 1
"""


class Totals(NamedTuple):
    """The totals of a run after a batch; they are stored with it."""

    last_seq: int = 0
    events: int = 0
    steps: int = 0
    output_bytes: int = 0


def append(
    connection: sqlite3.Connection,
    run_id: str,
    epoch: int,
    items: Sequence[Recorded],
    scope: JsonObject | None,
    output_cap: int,
) -> None:
    """Store `items` (in sequence order, at least one), if the run is still at `epoch`."""
    found = connection.execute(_TOTALS, (run_id, epoch)).fetchone()
    if found is None or found[1] >= items[0].seq:
        raise refusal(connection, run_id, epoch, items[0].seq)
    store_items(connection, found[0], Totals(*found[1:]), items, scope, output_cap)


def store_items(
    connection: sqlite3.Connection,
    key: int,
    totals: Totals,
    items: Sequence[Recorded],
    scope: JsonObject | None,
    output_cap: int,
) -> None:
    """Store items that follow in a run with these `totals` so far."""
    check_order(items)
    batches = encode_batches(items)
    if totals.output_bytes + sum([batch.output_bytes for batch in batches]) > output_cap:
        batches = capped(items, totals.output_bytes, output_cap)
    if batches:
        totals = insert_batches(connection, key, batches, totals)
    if totals.last_seq < items[-1].seq:  # the last items were dropped output
        totals = totals._replace(last_seq=items[-1].seq)
        connection.execute("UPDATE run SET last_seq = ? WHERE key = ?", (items[-1].seq, key))
    finish = items[-1]
    if type(finish.event) is RunFinished:
        settle(connection, key, finish, scope, totals)


def refusal(connection: sqlite3.Connection, run_id: str, epoch: int, seq: int) -> StoreError:
    """Return the error for a write under `epoch` that was refused."""
    row = connection.execute(
        f"SELECT epoch, owner, {LAST_SEQ} FROM run WHERE id = ?",  # noqa: S608  (a constant)
        (run_id,),
    ).fetchone()
    return write_refusal(run_id, epoch, seq, row)


def insert_batches(
    connection: sqlite3.Connection, key: int, batches: list[Batch], totals: Totals
) -> Totals:
    """Insert rows and their blobs, many per statement; return the new totals."""
    _, events, steps, output_bytes = totals
    for start in range(0, len(batches), _ROWS_AT_ONCE):
        rows = batches[start : start + _ROWS_AT_ONCE]
        values: list[object] = []
        for row in rows:
            events += row.events
            steps += row.steps
            output_bytes += row.output_bytes
            values += (
                row_id(key, row.first_seq),
                row.last_seq,
                events,
                steps,
                output_bytes,
                row.kind,
                row.correlation_id,
                row.blobs,
                row.body,
            )
            if row.texts:
                store_texts(connection, key, row.texts)
        connection.execute(_insert_sql(len(rows)), values)
    return Totals(batches[-1].last_seq, events, steps, output_bytes)


@cache
def _insert_sql(rows: int) -> str:
    values = ",".join(["(?,?,?,?,?,?,?,?,?)"] * rows)
    return f"INSERT INTO stretch VALUES {values}"  # noqa: S608  (constants)


def settle(
    connection: sqlite3.Connection,
    key: int,
    finish: Recorded,
    scope: JsonObject | None,
    totals: Totals,
) -> None:
    """Write a run's end into its row and delete its stop request."""
    event = finish.event
    assert type(event) is RunFinished
    connection.execute(
        "UPDATE run SET status = ?, error = ?, failed_step = ?, finished_at = ?,"
        " last_seq = ?, events = ?, steps = ?, output_bytes = ? WHERE key = ?",
        (
            event.status,
            replace_surrogates(event.error[:ERROR_CHARACTERS]),
            replace_surrogates(event.failed_step),
            finish.time,
            *totals,
            key,
        ),
    )
    connection.execute("DELETE FROM stop_request WHERE run = ?", (key,))
    if scope is not None:
        _store_scope(connection, key, scope)


def _store_scope(connection: sqlite3.Connection, key: int, scope: JsonObject) -> None:
    blobs, body, texts = encode_scope(scope)
    store_texts(connection, key, texts)
    connection.execute("INSERT OR REPLACE INTO scope VALUES (?, ?, ?)", (key, blobs, body))


def checkpoint(
    connection: sqlite3.Connection, run_id: str, epoch: int, seq: int, state: bytes
) -> None:
    """Store the run's state after `seq`, if the run is still at `epoch`."""
    stored = connection.execute(
        "INSERT OR REPLACE INTO checkpoint SELECT key, ?, ? FROM run WHERE id = ? AND epoch = ?",
        (seq, pack(state), run_id, epoch),
    ).rowcount
    if not stored:
        raise refusal(connection, run_id, epoch, seq)
