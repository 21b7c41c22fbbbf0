"""Reads a run: events in order, what its state is rebuilt from, pages of a long output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.errors import NotFound
from infloop.model.events import (
    Output,
    Recorded,
    is_within,
    step_path,
)
from infloop.model.values import JsonObject, JsonValue, compact_json
from infloop.store.encoding.batches import MAX_SEQ, Row, decode_batch, stored_size
from infloop.store.encoding.compression import unpack
from infloop.store.encoding.large_texts import (
    Reference,
    decode_references,
    restore_texts,
    slice_page,
)
from infloop.store.encoding.step_outputs import ANSWER_BYTES, large_output, output_of
from infloop.store.interfaces.run_log import Checkpoint, EarlierEvents, LoadedRun, TextPage
from infloop.store.sqlite.blobs import read_page, text_reader
from infloop.store.sqlite.listing import read_run
from infloop.store.sqlite.row_ids import row_id

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

_END = 2**63 - 1


def read_events(
    connection: sqlite3.Connection,
    run_id: str,
    after_seq: int,
    until_seq: int | None,
    limit: int,
    include_output: bool,
) -> list[Recorded]:
    """Return up to `limit` items after `after_seq`, fewer when they are large."""
    key, _ = read_run(connection, run_id)
    until = _END if until_seq is None else until_seq
    found: list[Recorded] = []
    size = 0
    for batch_size, items in _batches(connection, key, run_id, after_seq, until, include_output):
        found += (item for item in items if after_seq < item.seq <= until)
        size += batch_size
        if len(found) >= limit or size > ANSWER_BYTES:
            break
    return found[:limit]


def read_events_before(
    connection: sqlite3.Connection,
    run_id: str,
    before_seq: int,
    step: str,
    limit: int,
    include_output: bool,
) -> EarlierEvents:
    """Return the last items before a sequence that are inside a step, reading backwards."""
    key, _ = read_run(connection, run_id)
    rows = connection.execute(
        "SELECT id & 0xFFFFFFFF, kind, correlation_id, blobs, body FROM stretch"
        " WHERE id BETWEEN ? AND ? AND (? OR kind = 'events') ORDER BY id DESC",
        (row_id(key, 0), row_id(key, max(0, min(before_seq - 1, MAX_SEQ))), include_output),
    )
    found: list[Recorded] = []
    size = 0
    for row in rows:
        for item in reversed(decode_batch(run_id, row, text_reader(connection))):
            event = item.event
            wanted = include_output or type(event) is not Output
            if item.seq < before_seq and wanted and is_within(step_path(event), step):
                found.append(item)
                if len(found) == limit:
                    return EarlierEvents(found[::-1], item.seq)
        size += stored_size(row)
        if size > ANSWER_BYTES:
            return EarlierEvents(found[::-1], row[0])
    return EarlierEvents(found[::-1], None)


def all_items(connection: sqlite3.Connection, key: int, run_id: str) -> Iterator[Recorded]:
    """Yield all items of a run, with one batch at a time in memory."""
    for _, items in _batches(connection, key, run_id, 0, _END, include_output=True):
        yield from items


def _batches(
    connection: sqlite3.Connection,
    key: int,
    run_id: str,
    after_seq: int,
    until: int,
    include_output: bool,
) -> Iterator[tuple[int, list[Recorded]]]:
    """Yield the size and the items of each batch that overlaps the range."""
    rows = connection.execute(
        "SELECT id & 0xFFFFFFFF, kind, correlation_id, blobs, body FROM stretch"
        " WHERE id >= coalesce((SELECT max(id) FROM stretch WHERE id BETWEEN ?1 AND ?2), ?1)"
        " AND id <= ?3 AND (?4 OR kind = 'events') ORDER BY id",
        (
            row_id(key, 0),
            row_id(key, min(after_seq + 1, MAX_SEQ)),
            row_id(key, min(until, MAX_SEQ)),
            include_output,
        ),
    )
    for row in rows:
        items = decode_batch(run_id, row, text_reader(connection))
        if not include_output:
            items = [item for item in items if type(item.event) is not Output]
        yield stored_size(row), items


def load_run(connection: sqlite3.Connection, run_id: str, until_seq: int | None) -> LoadedRun:
    """Return the run's nearest checkpoint and the events after it."""
    key, run = read_run(connection, run_id)
    until = _END if until_seq is None else until_seq
    (definition,) = connection.execute(
        "SELECT body FROM definition WHERE hash = ?", (run.definition,)
    ).fetchone()
    row = connection.execute(
        "SELECT seq, state FROM checkpoint WHERE run = ? AND seq <= ? ORDER BY seq DESC LIMIT 1",
        (key, until),
    ).fetchone()
    checkpoint = None if row is None else Checkpoint(row[0], unpack(row[1]))
    after_seq = 0 if checkpoint is None else checkpoint.seq
    events = [
        item
        for _, items in _batches(connection, key, run_id, after_seq, until, include_output=False)
        for item in items
        if after_seq < item.seq <= until
    ]
    return LoadedRun(run, unpack(definition), checkpoint, events)


def read_scope(connection: sqlite3.Connection, run_id: str) -> JsonObject | None:
    """Return the scope with which the run ended."""
    key, _ = read_run(connection, run_id)
    row = connection.execute("SELECT blobs, body FROM scope WHERE run = ?", (key,)).fetchone()
    if row is None:
        return None
    blobs, body = row
    scope: JsonValue = msgspec.json.decode(unpack(body))
    if blobs is not None:
        scope = restore_texts(scope, decode_references(blobs), text_reader(connection))
    assert isinstance(scope, dict)
    return scope


def output_page(
    connection: sqlite3.Connection, run_id: str, path: str, field: str, offset: int, limit: int
) -> TextPage:
    """Return part of an output field of the latest visit of a step."""
    key, _ = read_run(connection, run_id)
    rows = connection.execute(
        "SELECT id & 0xFFFFFFFF, kind, correlation_id, blobs, body FROM stretch"
        " WHERE id BETWEEN ? AND ? AND kind = 'events' ORDER BY id DESC",
        (row_id(key, 0), row_id(key, MAX_SEQ)),
    )
    needle = compact_json(path).encode()
    for row in rows:
        if needle not in unpack(row[4]):
            continue
        found = _output_of(connection, run_id, row, path, field)
        if isinstance(found, Reference):
            return read_page(connection, found.hash, offset, limit)
        if found is not None:
            return slice_page(found, offset, limit)
    raise NotFound(f"run {run_id!r} has no finished step {path!r}; `infloop show` lists its steps")


def _output_of(
    connection: sqlite3.Connection,
    run_id: str,
    row: Row,
    path: str,
    field: str,
) -> str | Reference | None:
    """Return the output, or the reference to it if it is a large text; None if it is elsewhere."""
    large = large_output([] if row[3] is None else decode_references(row[3]), field)
    whole = text_reader(connection)
    items = decode_batch(run_id, row, lambda text: "" if text == large else whole(text))
    return output_of(items, path, field, large)
