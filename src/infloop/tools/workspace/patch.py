"""The format of a patch, and what it makes of a text (pure).

    *** Begin Patch
    *** Add File: notes.txt
    +a new line
    *** Update File: src/a.py
    *** Move to: src/b.py
    @@ def greet():
     a line that stays
    -a line that goes
    +a line that comes
    *** Delete File: old.txt
    *** End Patch

Rules
  * A hunk begins with `@@`; the text after it is a line above the hunk. Several such lines narrow
    the place one after the other. The line numbers of a unified diff are ignored.
  * The lines that stay and go must be in the file exactly so, after the hunk before. Without a line
    at `@@` there must be only one such place.
  * A hunk that only adds lines adds them after the line at `@@`, or at the end of the file.
  * `*** End of File` after a hunk: its lines are the last ones of the file.
  * The file keeps its line ends (LF or CRLF), and whether its last line has one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_FILES = 100
MAX_HUNKS = 500

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _UPDATE, _DELETE = "*** Add File: ", "*** Update File: ", "*** Delete File: "
_MOVE, _END_OF_FILE, _HUNK = "*** Move to: ", "*** End of File", "@@"
# Our own fixed pattern: linear, no nested repeats.
_NUMBERS = re.compile(r" *-[0-9,]+ \+[0-9,]+ @@ ?")  # noqa: TID251


class AddFile(NamedTuple):
    """A new file."""

    path: str
    text: str


class DeleteFile(NamedTuple):
    """A file that is removed."""

    path: str


class Hunk(NamedTuple):
    """Lines that are replaced; `line` is where the hunk begins in the patch."""

    line: int
    anchors: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool


class UpdateFile(NamedTuple):
    """A file that is changed, or moved, or both."""

    path: str
    move_to: str | None
    hunks: tuple[Hunk, ...]


FileOperation: TypeAlias = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str) -> list[FileOperation]:
    """Return what a patch does to files, in its order; raise ToolError."""
    operations = _Reader(text).operations()
    if not operations:
        raise ToolError("patch-invalid", "the patch changes no file")
    if len(operations) > MAX_FILES:
        raise ToolError("patch-invalid", f"the patch changes more than {MAX_FILES} files")
    return operations


class _Reader:
    """Reads a patch line by line."""

    def __init__(self, text: str) -> None:
        self._lines = [line.removesuffix("\r") for line in text.strip("\r\n").split("\n")]
        self._at = 0
        self._hunks = 0

    def operations(self) -> list[FileOperation]:
        if self._take() != _BEGIN:
            raise self._problem(f"the first line must be {_BEGIN!r}")
        found = []
        while (line := self._take()) != _END:
            found.append(self._operation(line))
        if self._next() is not None:
            raise self._problem(f"there is something after {_END!r}")
        return found

    def _operation(self, line: str) -> FileOperation:
        if line.startswith(_ADD):
            added = self._while_prefixed("+")
            return AddFile(line.removeprefix(_ADD), "".join(f"{each[1:]}\n" for each in added))
        if line.startswith(_DELETE):
            return DeleteFile(line.removeprefix(_DELETE))
        if line.startswith(_UPDATE):
            return self._update(line.removeprefix(_UPDATE))
        raise self._problem("expected Add File, Update File, Delete File or End Patch")

    def _update(self, path: str) -> UpdateFile:
        moved = self._while_prefixed(_MOVE, most=1)
        hunks: list[Hunk] = []
        while (line := self._next()) is not None and not _is_marker(line):
            hunks.append(self._hunk(is_first=not hunks))
        if not hunks and not moved:
            raise self._problem("the file is neither changed nor moved")
        move_to = moved[0].removeprefix(_MOVE).rstrip() if moved else None
        return UpdateFile(path, move_to, tuple(hunks))

    def _hunk(self, *, is_first: bool) -> Hunk:
        begin = self._at + 1
        self._hunks += 1
        if self._hunks > MAX_HUNKS:
            raise self._problem(f"the patch has more than {MAX_HUNKS} hunks")
        heads = self._while_prefixed(_HUNK)
        if not heads and not is_first:
            raise self._problem(f"a hunk begins with {_HUNK!r}")
        first = self._at
        while (line := self._next()) is not None and line[:1] in ("", " ", "-", "+"):
            self._at += 1
        lines = self._lines[first : self._at]
        while lines and not lines[-1]:  # between the hunk and what follows
            lines.pop()
        old = [line[1:] for line in lines if line[:1] != "+"]
        new = [line[1:] for line in lines if line[:1] != "-"]
        if old == new:
            raise self._problem("the hunk changes nothing; its lines begin with ' ', '-' or '+'")
        at_end = bool(self._while_prefixed(_END_OF_FILE, most=1))
        anchors = (_NUMBERS.sub("", head.removeprefix(_HUNK), 1).strip() for head in heads)
        return Hunk(begin, tuple(filter(None, anchors)), tuple(old), tuple(new), at_end)

    def _while_prefixed(self, prefix: str, most: int | None = None) -> list[str]:
        begin = self._at
        while (line := self._next()) is not None and line.startswith(prefix):
            if self._at - begin == most:
                break
            self._at += 1
        return self._lines[begin : self._at]

    def _next(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _take(self) -> str:
        line = self._next()
        if line is None:
            raise self._problem(f"the patch does not end with {_END!r}")
        self._at += 1
        return line.rstrip()

    def _problem(self, reason: str) -> ToolError:
        number = min(self._at + 1, len(self._lines))
        return ToolError("patch-invalid", f"line {number} of the patch: {reason}")


def _is_marker(line: str) -> bool:
    return line.rstrip() == _END or line.startswith((_ADD, _UPDATE, _DELETE))


def patched(text: str, hunks: Sequence[Hunk], path: str) -> str:
    """Return a text with all hunks applied; raise ToolError if one does not fit."""
    has_crlf = "\r\n" in text and text.count("\n") == text.count("\r\n")
    plain = text.replace("\r\n", "\n") if has_crlf else text
    ends = not plain or plain.endswith("\n")
    # A line feed on both sides of every line: so a search finds whole lines only.
    body = f"\n{plain}" if ends else f"\n{plain}\n"
    done, at = [], 0
    for hunk in hunks:
        place = _place(body, hunk, _after_anchors(body, hunk, at, path), path)
        done += [body[at:place], *(f"\n{line}" for line in hunk.new)]
        at = place + sum(len(line) + 1 for line in hunk.old)
    result = ("".join(done) + body[at:])[1:]
    result = result if ends else result.removesuffix("\n")
    return result.replace("\n", "\r\n") if has_crlf else result


def _after_anchors(body: str, hunk: Hunk, at: int, path: str) -> int:
    """Return where the line after the last anchor begins."""
    for anchor in hunk.anchors:
        found = body.find(anchor, at)
        while found >= 0:
            begin, end = body.rindex("\n", 0, found) + 1, body.index("\n", found)
            if body[begin:end].strip() == anchor and begin > at:
                break
            found = body.find(anchor, end)
        if found < 0:
            raise _misfit("hunk-not-found", hunk, f"{path!r} has no line {anchor!r} there")
        at = end
    return at


def _place(body: str, hunk: Hunk, start: int, path: str) -> int:
    """Return where the lines of a hunk are."""
    if not hunk.old:
        return start if hunk.anchors and not hunk.at_end else len(body) - 1
    block = "\n" + "".join(f"{line}\n" for line in hunk.old)
    if hunk.at_end:
        place = len(body) - len(block)
        if place < start or not body.endswith(block):
            raise _misfit("hunk-not-found", hunk, f"{path!r} does not end with its lines")
        return place
    place = body.find(block, start)
    if place < 0:
        raise _misfit("hunk-not-found", hunk, f"{path!r} does not have its lines: read it again")
    if not hunk.anchors and body.find(block, place + 1) >= 0:
        raise _misfit(
            "hunk-not-unique",
            hunk,
            f"{path!r} has its lines more than once: give more of them, or a line at `@@`",
        )
    return place


def _misfit(code: str, hunk: Hunk, reason: str) -> ToolError:
    return ToolError(code, f"the hunk at line {hunk.line} of the patch does not fit: {reason}")
