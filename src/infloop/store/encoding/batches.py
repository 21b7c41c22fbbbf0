"""Events and output as rows, and back.

A batch is one row: neighbouring items of one append.

- The items of a batch have one correlation id and one kind: events or output. A small append is one
  batch whatever its kinds.
- Batches of a run never overlap, so the rows in order are the run in order.
- A batch holds up to 64 KiB before it is compressed. A larger event has a row of its own, and only
  such a row can refer to blobs.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.model.events import (
    Event,
    Notice,
    Output,
    Recorded,
    StepFinished,
    StepPassed,
)
from infloop.store.encoding.compression import pack, unpack
from infloop.store.encoding.large_texts import (
    LARGE,
    Reference,
    decode_references,
    encode_references,
    extract_texts,
    restore_texts,
)
from infloop.store.encoding.outputs import decode_deltas, encode_deltas, split_deltas
from infloop.store.encoding.values import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Kind: TypeAlias = Literal["events", "output", "dropped"]

_STEP_ENDS = (StepPassed, StepFinished)

_Item: TypeAlias = tuple[int, int, Event | Output]  # sequence, time, event

SMALL_ITEMS = 16
SMALL_BYTES = 4096
"""Limits of an append that is stored as one row."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[_Item]).decode

MAX_SEQ = 0xFFFFFFFF
"""The largest sequence number: it has 32 bits."""

Row: TypeAlias = tuple[int, Kind, str, str | None, bytes]
"""A stored row: first sequence, kind, correlation id, blobs, body."""


class Batch(msgspec.Struct, frozen=True):
    """One row; `texts` are the blobs that must be stored with it, by hash."""

    first_seq: int
    last_seq: int
    kind: Kind
    correlation_id: str
    body: bytes
    events: int = 0
    steps: int = 0
    output_bytes: int = 0
    blobs: str | None = None
    texts: dict[str, str] = {}


def encode_batches(items: Sequence[Recorded]) -> list[Batch]:
    """Return the rows for `items`, which are in sequence order."""
    # One row instead of three for an effect step: 340 instead of 390 µs (`make bench
    # BENCH="--only effects"`, 21 alternating rounds at real-time priority). To find out whether
    # the items are small they are encoded; if they are not, that is done again below.
    small = _encode_small(items) if len(items) <= SMALL_ITEMS else None
    return encode_separately(items) if small is None else [small]


def encode_separately(items: Sequence[Recorded]) -> list[Batch]:
    """Return rows for `items`, none with both events and output."""
    batches: list[Batch] = []
    for (is_output, correlation_id), group in groupby(items, _kind_and_correlation):
        neighbours = list(group)
        if is_output:
            parts = split_deltas(neighbours, LARGE)
            batches += (_output(deltas, correlation_id) for deltas in parts)
        else:
            batches += _events(neighbours, correlation_id)
    return batches


def dropped_marker(first: Recorded, output_bytes: int) -> Batch:
    """Return the row that says that the run's output is dropped from `first` on."""
    event = first.event
    assert type(event) is Output
    body = pack(to_json((first.time, event.path, event.node)))
    return Batch(
        first_seq=first.seq,
        last_seq=first.seq,
        kind="dropped",
        output_bytes=output_bytes,
        correlation_id=first.correlation_id,
        body=body,
    )


def decode_batch(
    run_id: str,
    row: Row,
    read: Callable[[Reference], str],
) -> list[Recorded]:
    """Return the items of a stored row."""
    first_seq, kind, correlation_id, blobs, body = row
    data = unpack(body)
    match kind:
        case "output":
            return decode_deltas(data, run_id, correlation_id)
        case "dropped":
            time, path, node = msgspec.json.decode(data, type=tuple[int, str, str])
            notice = Notice(
                "the output of this run is not stored from here on: it reached the limit",
                path,
                node,
                "warning",
            )
            return [Recorded(run_id, first_seq, time, correlation_id, notice)]
        case "events":
            items = _decode(data) if blobs is None else [_restore(data, blobs, read)]
            return [
                Recorded(run_id, seq, time, correlation_id, event) for seq, time, event in items
            ]


def _encode_small(items: Sequence[Recorded]) -> Batch | None:
    """Return one row for small items that end with an event, or None if they are not small."""
    first, last = items[0], items[-1]
    if type(last.event) is Output:
        return None
    try:
        data = _encode([(recorded.seq, recorded.time, recorded.event) for recorded in items])
    except UnicodeEncodeError:
        return None
    if len(data) > SMALL_BYTES:
        return None
    outputs = steps = output_bytes = 0
    for recorded in items:
        event = recorded.event
        if recorded.correlation_id != first.correlation_id:
            return None
        if type(event) is Output:
            outputs += 1
            output_bytes += len(event.text)
        elif type(event) in _STEP_ENDS:
            steps += 1
    return Batch(
        first_seq=first.seq,
        last_seq=last.seq,
        kind="events",
        events=len(items) - outputs,
        steps=steps,
        output_bytes=output_bytes,
        correlation_id=first.correlation_id,
        body=pack(data),
    )


def _kind_and_correlation(recorded: Recorded) -> tuple[bool, str]:
    return type(recorded.event) is Output, recorded.correlation_id


def _output(deltas: Sequence[Recorded], correlation_id: str) -> Batch:
    data = encode_deltas(deltas)
    return Batch(
        first_seq=deltas[0].seq,
        last_seq=deltas[-1].seq,
        kind="output",
        output_bytes=len(data),
        correlation_id=correlation_id,
        body=pack(data),
    )


def _events(items: Sequence[Recorded], correlation_id: str) -> Iterator[Batch]:
    encoded: list[bytes] = []
    size = begin = 0
    for index, recorded in enumerate(items):
        data = to_json((recorded.seq, recorded.time, recorded.event))
        size += len(data)
        if size > LARGE and encoded:
            yield _joined(items[begin:index], encoded, correlation_id)
            encoded, size, begin = [], len(data), index
        if size > LARGE:
            yield _large(recorded, data)
            size, begin = 0, index + 1
        else:
            encoded.append(data)
    if encoded:
        yield _joined(items[begin:], encoded, correlation_id)


def _joined(items: Sequence[Recorded], encoded: list[bytes], correlation_id: str) -> Batch:
    steps = sum(type(recorded.event) in _STEP_ENDS for recorded in items)
    body = pack(b"[%b]" % b",".join(encoded))
    return Batch(
        first_seq=items[0].seq,
        last_seq=items[-1].seq,
        kind="events",
        events=len(items),
        steps=steps,
        correlation_id=correlation_id,
        body=body,
    )


def _large(recorded: Recorded, data: bytes) -> Batch:
    seq, time, event = msgspec.json.decode(data)
    extracted = extract_texts(event)
    body = pack(to_json([(seq, time, extracted.value)]))
    steps = int(type(recorded.event) in _STEP_ENDS)
    blobs = encode_references(extracted.references)
    return Batch(
        first_seq=seq,
        last_seq=seq,
        kind="events",
        events=1,
        steps=steps,
        correlation_id=recorded.correlation_id,
        blobs=blobs,
        body=body,
        texts=extracted.texts,
    )


def _restore(data: bytes, blobs: str, read: Callable[[Reference], str]) -> tuple[int, int, Event]:
    ((seq, time, event),) = msgspec.json.decode(data)
    whole = restore_texts(event, decode_references(blobs), read)
    return seq, time, msgspec.convert(whole, Event)


def stored_size(row: Row) -> int:
    """Return about how large the items of a row are, blobs included."""
    blobs = row[3]
    texts = 0 if blobs is None else sum(text.characters for text in decode_references(blobs))
    return len(row[4]) + texts
