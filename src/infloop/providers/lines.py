"""Splits a stream of text into lines, in bounded memory.

- Only a newline ends a line. Other Unicode separators may stand inside a line of JSON.
- A byte order mark at the beginning is removed, and so is a carriage return before the newline.
"""

from __future__ import annotations

from io import StringIO
from typing import NamedTuple

MAX_LINE_CHARS = 8 << 20


class Line(NamedTuple):
    """A line with its newline, if it had one; `cut` if it was too long and its end is missing."""

    text: str
    cut: bool = False


class Lines:
    """Takes pieces of text and returns whole lines, each up to `limit` characters."""

    def __init__(self, limit: int = MAX_LINE_CHARS) -> None:
        self._limit = limit
        self._line = StringIO()
        self._cut = False
        self._begun = False

    def feed(self, text: str) -> list[Line]:
        """Take the next piece; return the lines that it completes."""
        if text and not self._begun:
            self._begun = True
            text = text.removeprefix("\ufeff")
        first, *others = text.split("\n")
        self._add(first)
        if not others:
            return []
        last = others.pop()
        lines = [self._close("\n"), *map(self._whole, others)]
        self._add(last)
        return lines

    def finish(self) -> list[Line]:
        """Return the last line if the stream ended without a newline."""
        return [self._close("")] if self._line.tell() else []

    def _whole(self, text: str) -> Line:
        return Line(text[: self._limit].removesuffix("\r") + "\n", len(text) > self._limit)

    def _add(self, piece: str) -> None:
        room = self._limit - self._line.tell()
        self._cut = self._cut or len(piece) > room
        self._line.write(piece[:room])

    def _close(self, end: str) -> Line:
        line = Line(self._line.getvalue().removesuffix("\r") + end, self._cut)
        self._line = StringIO()
        self._cut = False
        return line
