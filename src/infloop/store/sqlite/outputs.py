"""How many small deltas become one compact text, and deltas again.

The form: one line of JSON, then all texts joined. The line holds the first sequence number (the
others follow without a gap), who spoke how often in a row, the time of each delta as the distance
to the one before, and the length of each in characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from infloop.model.events import Output, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SURROGATES = "surrogatepass"  # a child's bytes may have been decoded to anything


class _Speaker(msgspec.Struct, array_like=True):
    path: str
    node: str
    stream: Literal["stdout", "stderr", "tool"]
    iteration: int
    deltas: int = 0


class _Header(msgspec.Struct, array_like=True):
    first_seq: int
    speakers: list[_Speaker]
    times: list[int]
    lengths: list[int]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Header).decode


def batches(deltas: Sequence[Recorded], characters: int) -> Iterator[Sequence[Recorded]]:
    """Cut deltas where a sequence number is missing, or before more than `characters` gather."""
    begin = gathered = 0
    expected = deltas[0].seq
    for index, delta in enumerate(deltas):
        assert type(delta.event) is Output
        length = len(delta.event.text)
        if index > begin and (delta.seq != expected or gathered + length > characters):
            yield deltas[begin:index]
            begin, gathered = index, 0
        gathered += length
        expected = delta.seq + 1
    yield deltas[begin:]


def encode_batch(deltas: Sequence[Recorded]) -> bytes:
    """Return the stored form of deltas whose sequence numbers follow each other."""
    header = _Header(deltas[0].seq, [], [], [])
    texts = []
    who = None
    before = 0
    for delta in deltas:
        event = delta.event
        assert type(event) is Output
        if who != (who := (event.path, event.node, event.stream, event.iteration)):
            header.speakers.append(_Speaker(*who))
        header.speakers[-1].deltas += 1
        header.times.append(delta.time - before)
        before = delta.time
        header.lengths.append(len(event.text))
        texts.append(event.text)
    return _encode(header) + b"\n" + "".join(texts).encode(errors=_SURROGATES)


def decode_batch(data: bytes, run_id: str, correlation_id: str) -> list[Recorded]:
    """Return the deltas that `encode_batch` was given."""
    line, _, encoded = data.partition(b"\n")
    header = _decode(line)
    text = encoded.decode(errors=_SURROGATES)
    speakers = (speaker for speaker in header.speakers for _ in range(speaker.deltas))
    deltas = []
    time = position = 0
    for index, (who, wait, length) in enumerate(
        zip(speakers, header.times, header.lengths, strict=True)
    ):
        time += wait
        piece = text[position : position + length]
        position += length
        output = Output(who.path, who.node, piece, who.stream, who.iteration)
        deltas.append(Recorded(run_id, header.first_seq + index, time, correlation_id, output))
    return deltas
