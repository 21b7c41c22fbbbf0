"""How a development loop is shown: labelled lines, each written at once.

- Output of children keeps its colours (SGR sequences). Other terminal sequences are removed, and
  other control characters are shown as escapes.
- Colours are used if standard output is a terminal and NO_COLOR is not set.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO
from zlib import crc32

from infloop.cli.view.terminal import safe
from infloop.model.dev.line_levels import level_of, reaches

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from infloop.model.dev.line_levels import LineLevel
    from infloop.supervisor.reports import Level, Source

_COLOURS = (31, 32, 33, 34, 36)
_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_LABEL = "[infloop dev]"
# Our own fixed patterns: linear, no nested repeats.
_SGR = re.compile(r"\x1b\[[0-9;:]{0,60}m")  # noqa: TID251
_SEQUENCE = re.compile(  # noqa: TID251
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]?"
)


def keep_colours(text: str) -> str:
    """Return a line with its SGR sequences and without any other terminal sequence."""
    if text.isascii() and text.isprintable():
        return text
    parts, at = [], 0
    for found in _SGR.finditer(text):
        parts += [_plain(text[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*parts, _plain(text[at:])])


def _plain(text: str) -> str:
    return safe(_SEQUENCE.sub("", text))


class DevLines:
    """Writes lines; implements the surface of the supervisor."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._before: Callable[[], None] | None = None
        self._after: Callable[[], None] | None = None
        self._last_levels: dict[tuple[str, str], LineLevel] = {}
        self.levels: dict[str, LineLevel] = {}
        """Levels that replace those of the configuration, by the names of their sources."""
        self.muted: set[str] = set()
        self.followed = ""

    def above(self, before: Callable[[], None] | None, after: Callable[[], None] | None) -> None:
        """Call these before and after each write: a status line is removed and drawn again."""
        self._before, self._after = before, after

    def line(
        self,
        source: Source,
        stream: Literal["stdout", "stderr"],
        text: str,
        *,
        complete: bool,
    ) -> None:
        """Show a line of a child."""
        muted = source.name in self.muted or self.followed not in ("", source.name)
        if muted or not self._reaches(source, stream, text):
            return
        end = "\n" if complete or self._after else ""
        out = sys.stdout if stream == "stdout" else sys.stderr
        if not text:
            self._write(out, end)
            return
        label = safe(f"[{source.program} {source.name}] ")
        body = keep_colours(text)
        if self._colours:
            dim = source.body_style == "dim"
            colour = _COLOURS[crc32(label.encode()) % len(_COLOURS)]
            label = f"\x1b[{'2;' if dim else ''}1;{colour}m{label}{_RESET}"
            if dim:
                body = f"{_DIM}{_SGR.sub(lambda found: found[0] + _DIM, body)}{_RESET}"
            elif "\x1b" in body:
                body += _RESET
        else:
            body = _SGR.sub("", body)
        self._write(out, f"{label}{body}{end}")

    def _reaches(self, source: Source, stream: Literal["stdout", "stderr"], text: str) -> bool:
        """Tell whether a line is of the level that is shown of its source."""
        least = self.levels.get(source.name, source.level)
        if least == "debug":
            return True
        key = (source.name, stream)
        plain = _SEQUENCE.sub("", text)
        level = level_of(plain, stream, self._last_levels.get(key, "info"))
        self._last_levels[key] = level
        return reaches(level, least)

    def log(self, level: Level, message: str) -> None:
        """Show a message of the engine on stderr."""
        when = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        text = safe(message).replace("\n", "\\n")
        colour = {"INFO": 32, "WARN": 33, "ERROR": 31}[level]
        shown = f"\x1b[{colour}m{level}{_RESET}" if self._colours else level
        self._write(sys.stderr, f"{_LABEL} {shown} {when} {text}\n")

    def box(self, message: str) -> None:
        """Show a message of a workflow in a box."""
        text = safe(message).replace("\n", "\\n")
        width = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text) + 4
        rule = f"+{'-' * width}+"
        for row in (rule, f"|  {text}  |", rule):
            self._write(sys.stderr, f"{_LABEL} {row}\n")

    def status_changed(self) -> None:
        if self._after is not None:
            with suppress(OSError):
                self._after()

    def _write(self, out: TextIO, text: str) -> None:
        with suppress(OSError):  # the terminal is gone: a signal ends the loop
            if self._before is not None:
                self._before()
            out.write(text)
            out.flush()
            if self._after is not None:
                self._after()
