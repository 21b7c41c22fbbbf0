"""Creates a run, or forks one from another run."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from infloop.errors import NotFound, StoreError
from infloop.model.events import Recorded
from infloop.model.values import compact_json
from infloop.store.encoding.appends import check_first
from infloop.store.encoding.batches import MAX_SEQ, decode_batch, encode_batches
from infloop.store.encoding.values import replace_surrogates
from infloop.store.interfaces.run_log import NewRun, Ownership, definition_hash
from infloop.store.sqlite.append import Totals, insert_batches, store_items
from infloop.store.sqlite.blobs import text_reader
from infloop.store.sqlite.definitions import keep_definition
from infloop.store.sqlite.row_ids import row_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.values import JsonObject

FIRST_EPOCH = 1


def create_run(
    connection: sqlite3.Connection,
    run: NewRun,
    items: Sequence[Recorded],
    scope: JsonObject | None,
    output_cap: int,
) -> int:
    """Store a run and its first events; return its epoch."""
    key = _insert_run(connection, run, check_first(run, items[0]))
    store_items(connection, key, Totals(), items, scope, output_cap)
    return FIRST_EPOCH


def fork(connection: sqlite3.Connection, run_id: str, before_seq: int, run: NewRun) -> Ownership:
    """Store `run` with copies of another run's items and checkpoints below `before_seq`.

    With another definition it has no checkpoints: they hold what follows by the old one.
    """
    row = connection.execute("SELECT key, definition FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id!r} to fork")
    source: int = row[0]
    definition = definition_hash(run.definition)
    key = _insert_run(connection, run, definition)
    connection.execute(
        "INSERT INTO blob_use SELECT ?, hash FROM blob_use WHERE run = ?", (key, source)
    )
    connection.execute(
        "INSERT INTO stretch SELECT id + ?, last_seq, events, steps, output_bytes, kind, ?,"
        " blobs, body FROM stretch WHERE id BETWEEN ? AND ? AND last_seq < ?",
        (
            row_id(key - source, 0),
            run.correlation_id,
            row_id(source, 0),
            row_id(source, before_seq),
            before_seq,
        ),
    )
    _copy_partial_batch(connection, source, key, before_seq, run)
    if definition == row[1]:
        connection.execute(
            "INSERT INTO checkpoint SELECT ?, seq, state FROM checkpoint WHERE run = ? AND seq < ?",
            (key, source, before_seq),
        )
    last_seq = _totals(connection, key).last_seq
    if last_seq == 0:
        raise StoreError(f"run {run_id!r} has nothing before sequence {before_seq} to fork")
    return Ownership(FIRST_EPOCH, last_seq)


def _totals(connection: sqlite3.Connection, key: int) -> Totals:
    """Return the totals after a run's last batch."""
    row = connection.execute(
        "SELECT last_seq, events, steps, output_bytes FROM stretch WHERE id BETWEEN ? AND ?"
        " ORDER BY id DESC LIMIT 1",
        (row_id(key, 0), row_id(key, MAX_SEQ)),
    ).fetchone()
    return Totals(*row) if row else Totals()


def _insert_run(connection: sqlite3.Connection, run: NewRun, definition: str) -> int:
    keep_definition(connection, definition, run.definition)
    try:
        key = connection.execute(
            "INSERT INTO run (id, workflow_id, workflow_name, definition, correlation_id, cause,"
            " owner, epoch, status, started_at, last_seq, events, steps, output_bytes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, 0, 0, 0, 0)",
            (
                run.id,
                run.workflow_id,
                replace_surrogates(run.workflow_name),
                definition,
                run.correlation_id,
                compact_json(run.cause),
                run.owner,
                FIRST_EPOCH,
                run.started_at,
            ),
        ).lastrowid
    except sqlite3.IntegrityError as error:
        raise StoreError(
            f"a run {run.id!r} exists already; every run needs an id of its own"
        ) from error
    assert key is not None
    return key


def _copy_partial_batch(
    connection: sqlite3.Connection, source: int, key: int, before_seq: int, run: NewRun
) -> None:
    """Copy the beginning of the batch that contains `before_seq`, if there is one."""
    row = connection.execute(
        "SELECT id & 0xFFFFFFFF, kind, ?, blobs, body FROM stretch"
        " WHERE id BETWEEN ? AND ? AND last_seq >= ?",
        (run.correlation_id, row_id(source, 0), row_id(source, before_seq - 1), before_seq),
    ).fetchone()
    if row is not None:
        items = decode_batch(run.id, row, text_reader(connection))
        kept = [item for item in items if item.seq < before_seq]
        insert_batches(connection, key, encode_batches(kept), _totals(connection, key))
