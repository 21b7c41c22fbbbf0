"""The fenced writes of a run: its events, output and checkpoints."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.events import Recorded, RunFinished
from infloop.store.blobs import LARGE, encode_references, store_texts, take_out
from infloop.store.encoding import mended_text, to_json
from infloop.store.packing import pack
from infloop.store.stretches import Stretch, dropped, encode_stretches

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from infloop.model.values import JsonObject

ERROR_CHARACTERS = 4096
"""How much of a run's error its row keeps; the event has all of it."""

_ROWS_AT_ONCE = 100


class Gaps:
    """Keeps a failed append from becoming a hole in a run's sequence.

    Used by the writer's thread alone, except for `first_error`.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[int, Exception]] = {}
        self.first_error: Exception | None = None

    def open(self, run_id: str, epoch: int, seq: int, error: Exception) -> None:
        """Note that the append beginning with `seq` failed."""
        self._open.setdefault((run_id, epoch), (seq, error))
        if self.first_error is None:
            self.first_error = error

    def check(self, run_id: str, epoch: int, seq: int) -> None:
        """Raise the error of an earlier append that `seq` would leave out."""
        gap = self._open.get((run_id, epoch))
        if gap is None:
            return
        missing, error = gap
        if seq > missing:
            raise error
        del self._open[run_id, epoch]


def append(
    connection: sqlite3.Connection,
    run_id: str,
    epoch: int,
    items: Sequence[Recorded],
    scope: JsonObject | None,
    output_cap: int,
) -> None:
    """Store `items` (in sequence order, at least one), if the run is still at `epoch`."""
    check_order(items)
    stretches = encode_stretches(items)
    output_bytes = sum(stretch.output_bytes for stretch in stretches)
    found = connection.execute(
        "UPDATE run SET last_seq = ?, events = events + ?, steps = steps + ?,"
        " output_bytes = output_bytes + ?"
        " WHERE id = ? AND epoch = ? AND last_seq < ? RETURNING key, output_bytes",
        (
            items[-1].seq,
            sum(stretch.events for stretch in stretches),
            sum(stretch.steps for stretch in stretches),
            output_bytes,
            run_id,
            epoch,
            items[0].seq,
        ),
    ).fetchall()
    if not found:
        raise refusal(connection, run_id, epoch, items[0].seq)
    ((key, total),) = found
    if output_bytes and total > output_cap:
        stretches = _capped(connection, key, stretches, total - output_bytes, output_cap, items)
    insert_stretches(connection, key, stretches)
    finish = items[-1]
    if type(finish.event) is RunFinished:
        settle(connection, key, finish, scope)


def check_order(items: Sequence[Recorded]) -> None:
    """Refuse items whose sequence numbers do not grow."""
    for before, after in pairwise(items):
        if after.seq <= before.seq:
            raise StoreError(
                f"run {after.run_id!r}: sequence {after.seq} cannot follow {before.seq}; "
                "append events in the order of their sequence numbers"
            )


def refusal(connection: sqlite3.Connection, run_id: str, epoch: int, seq: int) -> StoreError:
    """Return the reason why a write under `epoch` found no run to write to."""
    row = connection.execute(
        "SELECT epoch, owner, last_seq FROM run WHERE id = ?", (run_id,)
    ).fetchone()
    if row is None:
        return NotFound(f"there is no run {run_id!r}; it may have been pruned")
    now, owner, last_seq = row
    if now != epoch:
        return Fenced(
            f"run {run_id!r} belongs to {owner!r} since epoch {now}; this process still had "
            f"epoch {epoch} and must stop working on it"
        )
    return StoreError(
        f"run {run_id!r}: sequence {seq} cannot follow {last_seq}; sequence numbers only grow"
    )


def insert_stretches(connection: sqlite3.Connection, key: int, stretches: list[Stretch]) -> None:
    """Insert rows and their blobs, many to a statement."""
    for start in range(0, len(stretches), _ROWS_AT_ONCE):
        rows = stretches[start : start + _ROWS_AT_ONCE]
        values: list[object] = []
        for row in rows:
            values += (
                key,
                row.first_seq,
                row.last_seq,
                row.kind,
                row.events,
                row.steps,
                row.output_bytes,
                row.correlation_id,
                row.blobs,
                row.body,
            )
            if row.texts:
                store_texts(connection, key, row.texts)
        connection.execute(_insert_sql(len(rows)), values)


@cache
def _insert_sql(rows: int) -> str:
    places = ",".join(["(?,?,?,?,?,?,?,?,?,?)"] * rows)
    return f"INSERT INTO stretch VALUES {places}"  # noqa: S608  (constants)


def _capped(
    connection: sqlite3.Connection,
    key: int,
    stretches: list[Stretch],
    stored: int,
    cap: int,
    items: Sequence[Recorded],
) -> list[Stretch]:
    """Return the rows without the output that is too much; the first such leaves a mark."""
    kept = []
    for stretch in stretches:
        if stretch.kind != "output" or stored + stretch.output_bytes <= cap:
            stored += stretch.output_bytes
            kept.append(stretch)
        elif stored <= cap:
            kept.append(dropped(next(item for item in items if item.seq == stretch.first_seq)))
            stored = cap + 1
    connection.execute("UPDATE run SET output_bytes = ? WHERE key = ?", (stored, key))
    return kept


def settle(
    connection: sqlite3.Connection, key: int, finish: Recorded, scope: JsonObject | None
) -> None:
    """Write a run's end into its row; what was asked of it is thereby done."""
    event = finish.event
    assert type(event) is RunFinished
    connection.execute(
        "UPDATE run SET status = ?, error = ?, failed_step = ?, finished_at = ? WHERE key = ?",
        (
            event.status,
            mended_text(event.error[:ERROR_CHARACTERS]),
            mended_text(event.failed_step),
            finish.time,
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
        parted = take_out(msgspec.json.decode(data))
        data = to_json(parted.value)
        blobs = encode_references(parted.references)
        store_texts(connection, key, parted.texts)
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
