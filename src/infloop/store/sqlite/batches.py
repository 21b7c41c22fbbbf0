"""How events and output become rows, and rows events again.

A stretch is one row: neighbouring items of one append that are of one kind and have one
correlation id; a few words of output stay between their events, much output has rows of its own.
Stretches of a run never overlap, so reading them in order is reading the run.
A stretch holds some 64 KiB before it is packed; an event that is larger than that by itself has a
row of its own, and only such a row can refer to blobs.
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
from infloop.store.sqlite.blobs import (
    LARGE,
    Reference,
    decode_references,
    encode_references,
    put_back,
    take_out,
)
from infloop.store.sqlite.compression import pack, unpack
from infloop.store.sqlite.encoding import to_json
from infloop.store.sqlite.outputs import batches, decode_batch, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Kind: TypeAlias = Literal["events", "output", "dropped"]

_STEP_ENDS = (StepPassed, StepFinished)

_Item: TypeAlias = tuple[int, int, Event | Output]  # sequence, time, event

FEW_ITEMS = 16
FEW_BYTES = 4096

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[_Item]).decode


LAST_ROW = 0xFFFFFFFF
"""The last sequence number that a run can have."""


def row_id(key: int, first_seq: int) -> int:
    """Return the id of a run's row: those of one run follow each other."""
    return key << 32 | first_seq


class Stretch(msgspec.Struct, frozen=True):
    """One row of the journal; `texts` are the blobs that must be stored with it."""

    first_seq: int
    last_seq: int
    kind: Kind
    events: int
    steps: int
    output_bytes: int
    correlation_id: str
    blobs: str | None
    body: bytes
    texts: dict[str, str] = {}


def encode_stretches(items: Sequence[Recorded]) -> list[Stretch]:
    """Return the rows for `items`, which are in sequence order."""
    together = _few(items) if len(items) <= FEW_ITEMS else None
    return encode_apart(items) if together is None else [together]


def encode_apart(items: Sequence[Recorded]) -> list[Stretch]:
    """Return rows for `items` of which none holds both events and output."""
    stretches: list[Stretch] = []
    for (is_output, correlation_id), group in groupby(items, _kind_and_correlation):
        neighbours = list(group)
        if is_output:
            stretches += (_output(batch, correlation_id) for batch in batches(neighbours, LARGE))
        else:
            stretches += _events(neighbours, correlation_id)
    return stretches


def dropped(first: Recorded, output_bytes: int) -> Stretch:
    """Return the row that stands where output begins to be left out; from then it is too much."""
    event = first.event
    assert type(event) is Output
    body = pack(to_json((first.time, event.path, event.node)))
    return Stretch(
        first.seq, first.seq, "dropped", 0, 0, output_bytes, first.correlation_id, None, body
    )


def decode_stretch(
    run_id: str,
    row: tuple[int, Kind, str, str | None, bytes],
    read: Callable[[Reference], str],
) -> list[Recorded]:
    """Return the items of a stored row: (first sequence, kind, correlation id, blobs, body)."""
    first_seq, kind, correlation_id, blobs, body = row
    data = unpack(body)
    match kind:
        case "output":
            return decode_batch(data, run_id, correlation_id)
        case "dropped":
            time, path, node = msgspec.json.decode(data, type=tuple[int, str, str])
            notice = Notice(
                "from here on this run's output is not kept, because it is too much",
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


def _few(items: Sequence[Recorded]) -> Stretch | None:
    """Return one row for a few small items that end with an event; None if they are no such."""
    first, last = items[0], items[-1]
    if type(last.event) is Output:
        return None
    try:
        data = _encode([(recorded.seq, recorded.time, recorded.event) for recorded in items])
    except UnicodeEncodeError:
        return None
    if len(data) > FEW_BYTES:
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
    return Stretch(
        first.seq,
        last.seq,
        "events",
        len(items) - outputs,
        steps,
        output_bytes,
        first.correlation_id,
        None,
        pack(data),
    )


def _kind_and_correlation(recorded: Recorded) -> tuple[bool, str]:
    return type(recorded.event) is Output, recorded.correlation_id


def _output(deltas: Sequence[Recorded], correlation_id: str) -> Stretch:
    data = encode_batch(deltas)
    return Stretch(
        deltas[0].seq, deltas[-1].seq, "output", 0, 0, len(data), correlation_id, None, pack(data)
    )


def _events(items: Sequence[Recorded], correlation_id: str) -> Iterator[Stretch]:
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


def _joined(items: Sequence[Recorded], encoded: list[bytes], correlation_id: str) -> Stretch:
    steps = sum(type(recorded.event) in _STEP_ENDS for recorded in items)
    body = pack(b"[%b]" % b",".join(encoded))
    return Stretch(
        items[0].seq, items[-1].seq, "events", len(items), steps, 0, correlation_id, None, body
    )


def _large(recorded: Recorded, data: bytes) -> Stretch:
    seq, time, event = msgspec.json.decode(data)
    parted = take_out(event)
    body = pack(to_json([(seq, time, parted.value)]))
    steps = int(type(recorded.event) in _STEP_ENDS)
    blobs = encode_references(parted.references)
    return Stretch(
        seq, seq, "events", 1, steps, 0, recorded.correlation_id, blobs, body, parted.texts
    )


def _restore(data: bytes, blobs: str, read: Callable[[Reference], str]) -> tuple[int, int, Event]:
    ((seq, time, event),) = msgspec.json.decode(data)
    whole = put_back(event, decode_references(blobs), read)
    return seq, time, msgspec.convert(whole, Event)
