"""Splits a stream of bytes into server-sent events, in bounded memory.

- Only what model servers use is supported: `data:` lines up to a blank line, with LF or CRLF.
- Other fields are ignored. The type of an event is also in its data.
- Bytes that are not UTF-8 are replaced. An event that is too long is cut and marked as such.
"""

from __future__ import annotations

from codecs import getincrementaldecoder

from infloop.providers.lines import MAX_LINE_CHARS, Line, Lines


class ServerEvents:
    """Takes pieces of bytes and returns the data of each whole event as one line."""

    def __init__(self, limit: int = MAX_LINE_CHARS) -> None:
        self._limit = limit
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._lines = Lines(limit)
        self._data: list[str] = []
        self._size = 0
        self._cut = False

    def feed(self, data: bytes) -> list[Line]:
        """Take the next bytes; return the events that they complete."""
        return self._read(self._lines.feed(self._decoder.decode(data)))

    def finish(self) -> list[Line]:
        """Return the last event if the stream ended without the blank line after it."""
        lines = self._lines.feed(self._decoder.decode(b"", final=True)) + self._lines.finish()
        return self._read([*lines, Line("")])

    def _read(self, lines: list[Line]) -> list[Line]:
        events: list[Line] = []
        for line in lines:
            text = line.text.removesuffix("\n")
            if text:
                self._take(text, cut=line.cut)
            elif self._data:
                events.append(Line("\n".join(self._data), self._cut))
                self._data, self._size, self._cut = [], 0, False
        return events

    def _take(self, text: str, *, cut: bool) -> None:
        field, _, value = text.partition(":")
        if field != "data":
            return
        value = value.removeprefix(" ")
        if self._size + len(value) > self._limit:
            self._cut = True
            return
        self._cut = self._cut or cut
        self._data.append(value)
        self._size += len(value) + 1


class WholeAnswer:
    """Collects an answer without streaming as one line, up to a limit."""

    def __init__(self, limit: int = MAX_LINE_CHARS) -> None:
        self._limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Line]:
        """Take the next bytes; nothing is complete before the end."""
        self._data += data[: self._limit + 1 - len(self._data)]
        return []

    def finish(self) -> list[Line]:
        """Return the answer."""
        text = self._data[: self._limit].decode("utf-8", "replace")
        return [Line(text, len(self._data) > self._limit)]
