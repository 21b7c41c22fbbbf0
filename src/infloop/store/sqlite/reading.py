"""Events in order, a run as it was, pages of a long output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.errors import NotFound
from infloop.model.events import Output, Recorded, StepFinished, StepPassed
from infloop.model.values import JsonObject, JsonValue, compact_json
from infloop.store.interfaces.run_log import Checkpoint, LoadedRun, TextPage
from infloop.store.sqlite.batches import LAST_ROW, Kind, decode_stretch, row_id
from infloop.store.sqlite.blobs import cut_page, decode_references, put_back, read_page, whole_texts
from infloop.store.sqlite.compression import unpack
from infloop.store.sqlite.listing import read_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

ANSWER_BYTES = 16 << 20
"""About how much one answer of `read_events` may hold."""

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
    for weight, items in _stretches(connection, key, run_id, after_seq, until, include_output):
        found += (item for item in items if after_seq < item.seq <= until)
        size += weight
        if len(found) >= limit or size > ANSWER_BYTES:
            break
    return found[:limit]


def every_event(connection: sqlite3.Connection, key: int, run_id: str) -> Iterator[Recorded]:
    """Return all items of a run, a stretch at a time in memory."""
    for _, items in _stretches(connection, key, run_id, 0, _END, include_output=True):
        yield from items


def _stretches(
    connection: sqlite3.Connection,
    key: int,
    run_id: str,
    after_seq: int,
    until: int,
    include_output: bool,
) -> Iterator[tuple[int, list[Recorded]]]:
    """Return the size and the items of each stretch that reaches into the range."""
    rows = connection.execute(
        "SELECT id & 0xFFFFFFFF, kind, correlation_id, blobs, body FROM stretch"
        " WHERE id >= coalesce((SELECT max(id) FROM stretch WHERE id BETWEEN ?1 AND ?2), ?1)"
        " AND id <= ?3 AND (?4 OR kind = 'events') ORDER BY id",
        (
            row_id(key, 0),
            row_id(key, min(after_seq + 1, LAST_ROW)),
            row_id(key, min(until, LAST_ROW)),
            include_output,
        ),
    )
    for row in rows:
        items = decode_stretch(run_id, row, whole_texts(connection))
        if not include_output:
            items = [item for item in items if type(item.event) is not Output]
        yield _weight(row), items


def _weight(row: tuple[int, Kind, str, str | None, bytes]) -> int:
    blobs = row[3]
    texts = 0 if blobs is None else sum(text.characters for text in decode_references(blobs))
    return len(row[4]) + texts


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
        for _, items in _stretches(connection, key, run_id, after_seq, until, include_output=False)
        for item in items
        if after_seq < item.seq <= until
    ]
    return LoadedRun(run, unpack(definition), checkpoint, events)


def read_scope(connection: sqlite3.Connection, run_id: str) -> JsonObject | None:
    """Return the scope the run ended with."""
    key, _ = read_run(connection, run_id)
    row = connection.execute("SELECT blobs, body FROM scope WHERE run = ?", (key,)).fetchone()
    if row is None:
        return None
    blobs, body = row
    scope: JsonValue = msgspec.json.decode(unpack(body))
    if blobs is not None:
        scope = put_back(scope, decode_references(blobs), whole_texts(connection))
    assert isinstance(scope, dict)
    return scope


def output_page(
    connection: sqlite3.Connection, run_id: str, path: str, field: str, offset: int, limit: int
) -> TextPage:
    """Return part of one output of the step's latest end."""
    key, _ = read_run(connection, run_id)
    rows = connection.execute(
        "SELECT id & 0xFFFFFFFF, kind, correlation_id, blobs, body FROM stretch"
        " WHERE id BETWEEN ? AND ? AND kind = 'events' ORDER BY id DESC",
        (row_id(key, 0), row_id(key, LAST_ROW)),
    )
    needle = compact_json(path).encode()
    for row in rows:
        if needle not in unpack(row[4]):
            continue
        page = _page_of_row(connection, run_id, row, path, field, offset, limit)
        if page is not None:
            return page
    raise NotFound(f"run {run_id!r} has no finished step {path!r}; `infloop show` lists its steps")


def _page_of_row(
    connection: sqlite3.Connection,
    run_id: str,
    row: tuple[int, Kind, str, str | None, bytes],
    path: str,
    field: str,
    offset: int,
    limit: int,
) -> TextPage | None:
    place = ("outputs", field)
    blobs = [] if row[3] is None else decode_references(row[3])
    large = next((text for text in blobs if text.place == place and text.form == "text"), None)
    whole = whole_texts(connection)
    items = decode_stretch(run_id, row, lambda text: "" if text == large else whole(text))
    for item in reversed(items):
        event = item.event
        if isinstance(event, StepFinished | StepPassed) and event.path == path:
            if large is not None:
                return read_page(connection, large.hash, offset, limit)
            return cut_page(_text_of(event.outputs, path, field), offset, limit)
    return None


def _text_of(outputs: JsonObject, path: str, field: str) -> str:
    if field not in outputs:
        raise NotFound(f"step {path!r} has no output {field!r}; it has {sorted(outputs)}")
    value = outputs[field]
    return value if isinstance(value, str) else compact_json(value)
