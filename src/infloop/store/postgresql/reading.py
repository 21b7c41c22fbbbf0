"""Reads a run: events in order, what its state is rebuilt from, pages of a long output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.errors import NotFound
from infloop.model.events import Output, Recorded, is_within, step_path
from infloop.model.values import JsonObject, JsonValue, compact_json
from infloop.store.encoding.batches import decode_batch, stored_size
from infloop.store.encoding.compression import unpack
from infloop.store.encoding.large_texts import (
    Reference,
    decode_references,
    restore_texts,
    slice_page,
)
from infloop.store.encoding.step_outputs import ANSWER_BYTES, large_output, output_of
from infloop.store.interfaces.run_log import Checkpoint, EarlierEvents, LoadedRun, TextPage
from infloop.store.postgresql.blobs import decode_row, read_page, read_texts
from infloop.store.postgresql.listing import read_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.store.encoding.batches import Row
    from infloop.store.postgresql.connections import Connection

_END = 2**63 - 1
_ROWS_AT_ONCE = 64


async def read_events(
    connection: Connection,
    run_id: str,
    after_seq: int,
    until_seq: int | None,
    limit: int,
    include_output: bool,
) -> list[Recorded]:
    """Return up to `limit` items after `after_seq`, fewer when they are large."""
    key, _ = await read_run(connection, run_id)
    until = _END if until_seq is None else until_seq
    found: list[Recorded] = []
    size = 0
    batches = _batches(connection, key, run_id, after_seq, until, include_output)
    async for batch_size, items in batches:
        found += (item for item in items if after_seq < item.seq <= until)
        size += batch_size
        if len(found) >= limit or size > ANSWER_BYTES:
            break
    return found[:limit]


async def read_events_before(
    connection: Connection,
    run_id: str,
    before_seq: int,
    step: str,
    limit: int,
    include_output: bool,
) -> EarlierEvents:
    """Return the last items before a sequence that are inside a step, reading backwards."""
    key, _ = await read_run(connection, run_id)
    found: list[Recorded] = []
    size = 0
    async for row in _rows_backwards(connection, key, before_seq, include_output):
        for item in reversed(await decode_row(connection, run_id, row)):
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


async def all_items(connection: Connection, key: int, run_id: str) -> AsyncIterator[Recorded]:
    """Yield all items of a run, with a few batches at a time in memory."""
    async for _, items in _batches(connection, key, run_id, 0, _END, include_output=True):
        for item in items:
            yield item


async def _batches(
    connection: Connection,
    key: int,
    run_id: str,
    after_seq: int,
    until: int,
    include_output: bool,
) -> AsyncIterator[tuple[int, list[Recorded]]]:
    """Yield the size and the items of each batch that overlaps the range."""
    async for row in _rows(connection, key, after_seq, until, include_output):
        items = await decode_row(connection, run_id, row)
        if not include_output:
            items = [item for item in items if type(item.event) is not Output]
        yield stored_size(row), items


async def _rows(
    connection: Connection, key: int, after_seq: int, until: int, include_output: bool
) -> AsyncIterator[Row]:
    cursor = await connection.execute(
        "SELECT coalesce(max(first_seq), 0) FROM batch WHERE run = %s AND first_seq <= %s",
        (key, min(after_seq, _END - 1) + 1),
    )
    first = await cursor.fetchone()
    assert first is not None
    begin: int = first[0]
    while True:
        cursor = await connection.execute(
            "SELECT first_seq, kind, correlation_id, blobs, body FROM batch"
            " WHERE run = %s AND first_seq BETWEEN %s AND %s AND (%s OR kind = 'events')"
            " ORDER BY first_seq LIMIT %s",
            (key, begin, until, include_output, _ROWS_AT_ONCE),
            binary=True,
        )
        rows = await cursor.fetchall()
        for row in rows:
            yield row
        if len(rows) < _ROWS_AT_ONCE:
            return
        begin = rows[-1][0] + 1


async def _rows_backwards(
    connection: Connection, key: int, before_seq: int, include_output: bool
) -> AsyncIterator[Row]:
    before = before_seq
    while True:
        cursor = await connection.execute(
            "SELECT first_seq, kind, correlation_id, blobs, body FROM batch"
            " WHERE run = %s AND first_seq < %s AND (%s OR kind = 'events')"
            " ORDER BY first_seq DESC LIMIT %s",
            (key, before, include_output, _ROWS_AT_ONCE),
            binary=True,
        )
        rows = await cursor.fetchall()
        for row in rows:
            yield row
        if len(rows) < _ROWS_AT_ONCE:
            return
        before = rows[-1][0]


async def load_run(connection: Connection, run_id: str, until_seq: int | None) -> LoadedRun:
    """Return the run's nearest checkpoint and the events after it."""
    key, run = await read_run(connection, run_id)
    until = _END if until_seq is None else until_seq
    cursor = await connection.execute(
        "SELECT body FROM definition WHERE hash = %s", (run.definition,), binary=True
    )
    definition = await cursor.fetchone()
    assert definition is not None
    cursor = await connection.execute(
        "SELECT seq, state FROM checkpoint WHERE run = %s AND seq <= %s ORDER BY seq DESC LIMIT 1",
        (key, until),
        binary=True,
    )
    row = await cursor.fetchone()
    checkpoint = None if row is None else Checkpoint(row[0], unpack(row[1]))
    after_seq = 0 if checkpoint is None else checkpoint.seq
    batches = _batches(connection, key, run_id, after_seq, until, include_output=False)
    events = [item async for _, items in batches for item in items if after_seq < item.seq <= until]
    return LoadedRun(run, unpack(definition[0]), checkpoint, events)


async def read_scope(connection: Connection, run_id: str) -> JsonObject | None:
    """Return the scope with which the run ended."""
    key, _ = await read_run(connection, run_id)
    cursor = await connection.execute(
        "SELECT blobs, body FROM scope WHERE run = %s", (key,), binary=True
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    blobs, body = row
    scope: JsonValue = msgspec.json.decode(unpack(body))
    if blobs is not None:
        references = decode_references(blobs)
        texts = await read_texts(connection, references)
        scope = restore_texts(scope, references, lambda reference: texts[reference.hash])
    assert isinstance(scope, dict)
    return scope


async def output_page(
    connection: Connection, run_id: str, path: str, field: str, offset: int, limit: int
) -> TextPage:
    """Return part of an output field of the latest visit of a step."""
    key, _ = await read_run(connection, run_id)
    needle = compact_json(path).encode()
    async for row in _rows_backwards(connection, key, _END, include_output=False):
        if needle not in unpack(row[4]):
            continue
        found = await _output_of(connection, run_id, row, path, field)
        if isinstance(found, Reference):
            return await read_page(connection, found.hash, offset, limit)
        if found is not None:
            return slice_page(found, offset, limit)
    raise NotFound(f"run {run_id!r} has no finished step {path!r}; `infloop show` lists its steps")


async def _output_of(
    connection: Connection, run_id: str, row: Row, path: str, field: str
) -> str | Reference | None:
    """Return the output, or the reference to it if it is a large text; None if it is elsewhere."""
    references = [] if row[3] is None else decode_references(row[3])
    large = large_output(references, field)
    texts = await read_texts(connection, [each for each in references if each != large])
    items = decode_batch(run_id, row, lambda each: "" if each == large else texts[each.hash])
    return output_of(items, path, field, large)
