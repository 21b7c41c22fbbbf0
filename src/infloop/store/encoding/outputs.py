"""Many small output deltas as one compact text, and back.

The format is one line of JSON, then all texts joined. The line has the first sequence number (the
others follow without a gap), the sources with the number of successive deltas of each and the tool
call that they are about, the time of
each delta relative to the one before, and the length of each in characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from infloop.model.events import Output, Recorded, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SURROGATES = "surrogatepass"  # the output of a child need not be valid text


class _Source(msgspec.Struct, array_like=True):
    path: str
    node: str
    stream: Literal["stdout", "stderr", "tool"]
    iteration: int
    deltas: int = 0
    tool: ToolCall | None = None


class _Header(msgspec.Struct, array_like=True):
    first_seq: int
    sources: list[_Source]
    times: list[int]
    lengths: list[int]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Header).decode


def split_deltas(deltas: Sequence[Recorded], characters: int) -> Iterator[Sequence[Recorded]]:
    """Split deltas where a sequence number is missing, and into parts of about `characters`."""
    begin = size = 0
    expected = deltas[0].seq
    for index, delta in enumerate(deltas):
        assert type(delta.event) is Output
        length = len(delta.event.text)
        if index > begin and (delta.seq != expected or size + length > characters):
            yield deltas[begin:index]
            begin, size = index, 0
        size += length
        expected = delta.seq + 1
    yield deltas[begin:]


def encode_deltas(deltas: Sequence[Recorded]) -> bytes:
    """Return the stored form of deltas whose sequence numbers have no gap."""
    header = _Header(deltas[0].seq, [], [], [])
    texts = []
    source: tuple[object, ...] = ()
    before = 0
    for delta in deltas:
        event = delta.event
        assert type(event) is Output
        if source != (
            source := (event.path, event.node, event.stream, event.iteration, event.tool)
        ):
            header.sources.append(_source(event))
        header.sources[-1].deltas += 1
        header.times.append(delta.time - before)
        before = delta.time
        header.lengths.append(len(event.text))
        texts.append(event.text)
    return _encode(header) + b"\n" + "".join(texts).encode(errors=_SURROGATES)


def _source(event: Output) -> _Source:
    return _Source(event.path, event.node, event.stream, event.iteration, 0, event.tool)


def decode_deltas(data: bytes, run_id: str, correlation_id: str) -> list[Recorded]:
    """Return the deltas that `encode_deltas` was given."""
    line, _, encoded = data.partition(b"\n")
    header = _decode(line)
    text = encoded.decode(errors=_SURROGATES)
    sources = (source for source in header.sources for _ in range(source.deltas))
    deltas = []
    time = position = 0
    for index, (source, interval, length) in enumerate(
        zip(sources, header.times, header.lengths, strict=True)
    ):
        time += interval
        piece = text[position : position + length]
        position += length
        output = Output(
            source.path, source.node, piece, source.stream, source.iteration, source.tool
        )
        deltas.append(Recorded(run_id, header.first_seq + index, time, correlation_id, output))
    return deltas
