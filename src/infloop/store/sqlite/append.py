"""The fenced writes of a run: its events, output and checkpoints."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.events import Recorded, RunFinished
from infloop.store.sqlite.batches import (
    LAST_ROW,
    Stretch,
    dropped,
    encode_apart,
    encode_stretches,
    row_id,
)
from infloop.store.sqlite.blobs import LARGE, encode_references, store_texts, take_out
from infloop.store.sqlite.compression import pack
from infloop.store.sqlite.encoding import mended_text, to_json
from infloop.store.sqlite.listing import LAST_SEQ

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from infloop.model.values import JsonObject

ERROR_CHARACTERS = 4096
"""How much of a run's error its row keeps; the event has all of it."""

_ROWS_AT_ONCE = 100

# One read, no write: an append then changes one page of the file, not two. BEGIN IMMEDIATE has
# been said before, so nobody can change the epoch meanwhile.
_FIGURES = """
SELECT run.key, max(run.last_seq, tail.last_seq), tail.events, tail.steps, tail.output_bytes
FROM run JOIN stretch AS tail ON tail.id BETWEEN run.key << 32 AND run.key << 32 | 0xFFFFFFFF
WHERE run.id = ? AND run.epoch = ?
ORDER BY tail.id DESC LIMIT 1
"""


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


class Figures(NamedTuple):
    """What a run adds up to at the end of a stretch."""

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
    found = connection.execute(_FIGURES, (run_id, epoch)).fetchone()
    if found is None or found[1] >= items[0].seq:
        raise refusal(connection, run_id, epoch, items[0].seq)
    store_items(connection, found[0], Figures(*found[1:]), items, scope, output_cap)


def store_items(
    connection: sqlite3.Connection,
    key: int,
    figures: Figures,
    items: Sequence[Recorded],
    scope: JsonObject | None,
    output_cap: int,
) -> None:
    """Store what follows in a run that adds up to `figures` so far."""
    check_order(items)
    stretches = encode_stretches(items)
    if figures.output_bytes + sum([stretch.output_bytes for stretch in stretches]) > output_cap:
        stretches = _capped(encode_apart(items), figures.output_bytes, output_cap, items)
    if stretches:
        figures = insert_stretches(connection, key, stretches, figures)
    if figures.last_seq < items[-1].seq:  # nothing of the end was worth a row
        figures = figures._replace(last_seq=items[-1].seq)
        connection.execute("UPDATE run SET last_seq = ? WHERE key = ?", (items[-1].seq, key))
    finish = items[-1]
    if type(finish.event) is RunFinished:
        settle(connection, key, finish, scope, figures)


def check_order(items: Sequence[Recorded]) -> None:
    """Refuse items whose sequence numbers do not grow, or are more than a row id has room for."""
    if items[-1].seq > LAST_ROW:
        raise StoreError(f"run {items[-1].run_id!r} is full: no run has more than {LAST_ROW} items")
    for before, after in pairwise(items):
        if after.seq <= before.seq:
            raise StoreError(
                f"run {after.run_id!r}: sequence {after.seq} cannot follow {before.seq}; "
                "append events in the order of their sequence numbers"
            )


def refusal(connection: sqlite3.Connection, run_id: str, epoch: int, seq: int) -> StoreError:
    """Return the reason why a write under `epoch` found no run to write to."""
    row = connection.execute(
        f"SELECT epoch, owner, {LAST_SEQ} FROM run WHERE id = ?",  # noqa: S608  (a constant)
        (run_id,),
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


def insert_stretches(
    connection: sqlite3.Connection, key: int, stretches: list[Stretch], figures: Figures
) -> Figures:
    """Insert rows and their blobs, many to a statement; return what the run adds up to then."""
    _, events, steps, output_bytes = figures
    for start in range(0, len(stretches), _ROWS_AT_ONCE):
        rows = stretches[start : start + _ROWS_AT_ONCE]
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
    return Figures(stretches[-1].last_seq, events, steps, output_bytes)


@cache
def _insert_sql(rows: int) -> str:
    places = ",".join(["(?,?,?,?,?,?,?,?,?)"] * rows)
    return f"INSERT INTO stretch VALUES {places}"  # noqa: S608  (constants)


def _capped(
    stretches: list[Stretch], stored: int, cap: int, items: Sequence[Recorded]
) -> list[Stretch]:
    """Return the rows without the output that is too much; the first such leaves a mark."""
    kept = []
    for stretch in stretches:
        if stretch.kind != "output" or stored + stretch.output_bytes <= cap:
            stored += stretch.output_bytes
            kept.append(stretch)
        elif stored <= cap:
            first = next(item for item in items if item.seq == stretch.first_seq)
            kept.append(dropped(first, cap + 1 - stored))
            stored = cap + 1
    return kept


def settle(
    connection: sqlite3.Connection,
    key: int,
    finish: Recorded,
    scope: JsonObject | None,
    figures: Figures,
) -> None:
    """Write a run's end into its row; what was asked of it is thereby done."""
    event = finish.event
    assert type(event) is RunFinished
    connection.execute(
        "UPDATE run SET status = ?, error = ?, failed_step = ?, finished_at = ?,"
        " last_seq = ?, events = ?, steps = ?, output_bytes = ? WHERE key = ?",
        (
            event.status,
            mended_text(event.error[:ERROR_CHARACTERS]),
            mended_text(event.failed_step),
            finish.time,
            *figures,
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
