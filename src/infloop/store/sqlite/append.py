"""The fenced writes of a run: events, output and checkpoints."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.events import Recorded, RunFinished
from infloop.store.sqlite.batches import (
    MAX_SEQ,
    Batch,
    dropped_marker,
    encode_batches,
    encode_separately,
    row_id,
)
from infloop.store.sqlite.blobs import LARGE, encode_references, extract_texts, store_texts
from infloop.store.sqlite.compression import pack
from infloop.store.sqlite.encoding import replace_surrogates, to_json
from infloop.store.sqlite.listing import LAST_SEQ

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from infloop.model.values import JsonObject

ERROR_CHARACTERS = 4096
"""How much of a run's error is in its row; the event has all of it."""

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


class FailedAppends:
    """Prevents gaps in a run's sequence after a failed append.

    Only the writer's thread uses it, except for `first_error`.
    """

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int], tuple[int, Exception]] = {}
        self.first_error: Exception | None = None

    def add(self, run_id: str, epoch: int, seq: int, error: Exception) -> None:
        """Note that the append that begins with `seq` failed."""
        self._failures.setdefault((run_id, epoch), (seq, error))
        if self.first_error is None:
            self.first_error = error

    def check(self, run_id: str, epoch: int, seq: int) -> None:
        """Raise the error of an earlier failed append, unless `seq` repeats it."""
        failure = self._failures.get((run_id, epoch))
        if failure is None:
            return
        failed_seq, error = failure
        if seq > failed_seq:
            raise error
        del self._failures[run_id, epoch]


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
        batches = _capped(encode_separately(items), totals.output_bytes, output_cap, items)
    if batches:
        totals = insert_batches(connection, key, batches, totals)
    if totals.last_seq < items[-1].seq:  # the last items were dropped output
        totals = totals._replace(last_seq=items[-1].seq)
        connection.execute("UPDATE run SET last_seq = ? WHERE key = ?", (items[-1].seq, key))
    finish = items[-1]
    if type(finish.event) is RunFinished:
        settle(connection, key, finish, scope, totals)


def check_order(items: Sequence[Recorded]) -> None:
    """Refuse items whose sequence numbers do not grow or exceed the maximum."""
    if items[-1].seq > MAX_SEQ:
        raise StoreError(
            f"run {items[-1].run_id!r} is full: the largest sequence number is {MAX_SEQ}"
        )
    for before, after in pairwise(items):
        if after.seq <= before.seq:
            raise StoreError(
                f"run {after.run_id!r}: sequence {after.seq} cannot follow {before.seq}; "
                "append events in the order of their sequence numbers"
            )


def refusal(connection: sqlite3.Connection, run_id: str, epoch: int, seq: int) -> StoreError:
    """Return the error for a write under `epoch` that was refused."""
    row = connection.execute(
        f"SELECT epoch, owner, {LAST_SEQ} FROM run WHERE id = ?",  # noqa: S608  (a constant)
        (run_id,),
    ).fetchone()
    if row is None:
        return NotFound(f"there is no run {run_id!r}; it may have been pruned")
    current, owner, last_seq = row
    if current != epoch:
        return Fenced(
            f"run {run_id!r} belongs to {owner!r} since epoch {current}; this process still had "
            f"epoch {epoch} and must stop working on it"
        )
    return StoreError(
        f"run {run_id!r}: sequence {seq} cannot follow {last_seq}; sequence numbers only grow"
    )


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


def _capped(batches: list[Batch], stored: int, cap: int, items: Sequence[Recorded]) -> list[Batch]:
    """Drop the output beyond `cap`; a marker replaces the first dropped batch of the run."""
    kept = []
    for batch in batches:
        if batch.kind != "output" or stored + batch.output_bytes <= cap:
            stored += batch.output_bytes
            kept.append(batch)
        elif stored <= cap:
            first = next(item for item in items if item.seq == batch.first_seq)
            kept.append(dropped_marker(first, cap + 1 - stored))
            stored = cap + 1
    return kept


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
    data = to_json(scope)
    blobs = None
    if len(data) > LARGE:
        extracted = extract_texts(msgspec.json.decode(data))
        data = to_json(extracted.value)
        blobs = encode_references(extracted.references)
        store_texts(connection, key, extracted.texts)
    connection.execute("INSERT OR REPLACE INTO scope VALUES (?, ?, ?)", (key, blobs, pack(data)))


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
