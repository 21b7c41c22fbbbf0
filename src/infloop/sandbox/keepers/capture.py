"""Captures a child's output in bounded memory: all of it if short, else its first and last bytes.

Nothing is done per line.
"""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from infloop.sandbox.base import OnOutput, Stream

_LONGEST_CHARACTER = 4


class Captured(NamedTuple):
    """A stream's text, and how many bytes are missing at its marker."""

    text: str
    omitted: int


class Capture:
    """Captures one stream; bytes that are not UTF-8 become U+FFFD.

    `on_output` gets as many bytes as are kept, or with `pass_all` all of them.
    """

    def __init__(
        self, stream: Stream, limit: int, on_output: OnOutput | None, *, pass_all: bool = False
    ) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0
        self._max_passed = sys.maxsize if pass_all else limit
        self._stream = stream
        self._on_output = on_output
        self._live: _LiveText | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._on_output:
            # Created with the first bytes: most children print nothing.
            self._live = self._live or _LiveText(self._stream, self._max_passed, self._on_output)
            self._live.feed(data)
        room = self._head_limit - len(self._head)
        if room >= len(data):
            self._head += data
            return
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut at twice the size, so that each byte is moved once on average.
        if len(self._tail) > 2 * self._tail_limit:
            self._cut_tail()

    def copy(self) -> Capture:
        """Return a capture with the same bytes and without `on_output`."""
        other = Capture("stdout", self._head_limit + self._tail_limit, None)
        other._head += self._head
        other._tail += self._tail
        other._cut = self._cut
        return other

    def finish(self) -> Captured:
        """Return the captured text; the stream has ended."""
        if self._live:
            self._live.finish()
        if not (self._tail or self._cut):
            return Captured(self._head.decode("utf-8", "replace"), 0)
        if len(self._tail) > self._tail_limit:
            self._cut_tail()
        if not self._cut:
            return Captured((self._head + self._tail).decode("utf-8", "replace"), 0)
        head, tail = _without_last_fragment(self._head), _without_first_fragment(self._tail)
        omitted = self._cut + len(self._head) - len(head) + len(self._tail) - len(tail)
        marker = f"\n[… {omitted} bytes left out …]\n"
        text = head.decode("utf-8", "replace") + marker + tail.decode("utf-8", "replace")
        return Captured(text, omitted)

    def _cut_tail(self) -> None:
        surplus = len(self._tail) - self._tail_limit
        del self._tail[:surplus]
        self._cut += surplus


class _LiveText:
    """Passes text on as it comes, up to the limit, then one marker."""

    def __init__(self, stream: Stream, limit: int, on_output: OnOutput) -> None:
        self._stream = stream
        self._limit = limit
        self._room = limit
        self._on_output: OnOutput | None = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        if self._on_output is None:
            return
        over = len(data) > self._room
        self._emit(self._decoder.decode(data[: self._room]))
        self._room -= len(data)
        if over:
            self._emit(f"\n[… more than {self._limit} bytes, the rest is not shown live …]\n")
            self._on_output = None

    def finish(self) -> None:
        if self._on_output is not None:
            self._emit(self._decoder.decode(b"", final=True))

    def _emit(self, text: str) -> None:
        if text and self._on_output is not None:
            self._on_output(self._stream, text)


def _without_last_fragment(data: bytearray) -> bytearray:
    """Return `data` without an incomplete character at its end."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if size > back else data
        if byte < 0x80:
            break
    return data


def _without_first_fragment(data: bytearray) -> bytearray:
    """Return `data` without the rest of a character at its beginning."""
    start = 0
    while start < min(_LONGEST_CHARACTER - 1, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
