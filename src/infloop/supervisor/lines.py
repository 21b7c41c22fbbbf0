"""Cuts the text of a stream into lines, in bounded memory. Pure.

A carriage return ends a line as well; `\\r\\n` counts once.
"""

from __future__ import annotations

LONGEST_LINE = 16 << 10
"""A longer line is cut in several."""


class LineSplitter:
    """One stream."""

    def __init__(self) -> None:
        self._rest = ""
        self._after_return = False

    def feed(self, text: str) -> list[str]:
        """Return the lines that are complete now."""
        if self._after_return and text.startswith("\n"):
            text = text[1:]
        self._after_return = text.endswith("\r") if text else self._after_return
        *lines, rest = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        while len(rest) > LONGEST_LINE:
            lines.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        self._rest = rest
        return lines

    def finish(self) -> str:
        """Return the last line, which has no end."""
        rest, self._rest = self._rest, ""
        return rest
