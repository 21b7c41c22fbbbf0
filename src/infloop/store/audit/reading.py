"""Reads the audit log: the newest entries, following it, verifying it.

Every function sees a consistent snapshot of all files, also while other processes write and rotate.
They block: call them in a thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.store.audit.files import CURRENT, OpenFile, lines_backwards, open_log
from infloop.store.audit.hash_chain import FIRST_PREV, flaw_of, hash_of, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infloop.model.audit import AuditEntry, AuditFilter

MAX_LINE = 1 << 20
"""Bytes of a line that are read at once; an entry is far shorter."""


class Page(NamedTuple):
    """Entries, newest first, and how many of the lines that were read are not entries."""

    entries: list[AuditEntry]
    unreadable: int


def newest(directory: Path, wanted: AuditFilter, limit: int, before: str = "") -> Page:
    """Return the newest entries that match, at most `limit`.

    With `before`, the hash of an entry, only those that are older than it.
    """
    entries: list[AuditEntry] = []
    unreadable = 0
    is_older = not before
    with open_log(directory) as files:
        for file in reversed(files):
            for line in lines_backwards(file.descriptor, file.size):
                if len(entries) >= limit:
                    return Page(entries, unreadable)
                entry = read_line(line)
                if entry is None:
                    unreadable += 1
                elif not is_older:
                    is_older = entry.hash == before
                elif wanted.includes(entry):
                    entries.append(entry)
    return Page(entries, unreadable)


class Follower:
    """Follows the log, beginning at its end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._position: OpenFile | None = None
        for _ in self._new_lines():
            pass

    def read(self, wanted: AuditFilter) -> list[AuditEntry]:
        """Return the matching entries since the last call, oldest first."""
        if self._is_unchanged():
            return []
        entries = map(read_line, self._new_lines())
        return [entry for entry in entries if entry is not None and wanted.includes(entry)]

    def close(self) -> None:
        """Close the file."""
        if self._position is not None:
            os.close(self._position.descriptor)
            self._position = None

    def _is_unchanged(self) -> bool:
        try:
            status = (self._directory / CURRENT).stat()
        except FileNotFoundError:
            return True
        known = self._position
        return (
            known is not None
            and os.fstat(known.descriptor).st_ino == status.st_ino
            and known.size == status.st_size
        )

    def _new_lines(self) -> Iterator[bytes]:
        with open_log(self._directory) as files:
            inodes = [os.fstat(file.descriptor).st_ino for file in files]
            begin, offset = 0, 0
            if self._position is not None:
                inode = os.fstat(self._position.descriptor).st_ino
                if inode in inodes:
                    begin, offset = inodes.index(inode), self._position.size
            for file in files[begin:]:
                for line in _lines(file, offset):
                    if line.endswith(b"\n"):  # the next writer removes a truncated line
                        offset += len(line)
                        yield line
                self._move_to(file, offset)
                offset = 0

    def _move_to(self, file: OpenFile, offset: int) -> None:
        # While the file is open, its inode number is not used for another file.
        self.close()
        self._position = OpenFile(file.name, os.dup(file.descriptor), offset)


class Flaw(msgspec.Struct, frozen=True):
    """The first line that is not intact: where it is, and what is wrong with it."""

    file: str
    line: int
    why: str


class Verification(msgspec.Struct, frozen=True):
    """How many entries are intact, in how many files, and the hash of the last of them."""

    entries: int
    files: int
    last: str
    flaw: Flaw | None = None


def verify(directory: Path) -> Verification:
    """Read the whole log and report the first line that was changed or breaks the chain.

    A log whose end was removed is still intact: compare `last` with a hash that was kept elsewhere.
    """
    count, prev = 0, None
    with open_log(directory) as files:
        for file in files:
            for number, line in enumerate(_lines(file, 0), 1):
                why = flaw_of(line, prev)
                if why:
                    last = prev or FIRST_PREV
                    return Verification(count, len(files), last, Flaw(file.name, number, why))
                count, prev = count + 1, hash_of(line)
    return Verification(count, len(files), prev or FIRST_PREV)


def _lines(file: OpenFile, offset: int) -> Iterator[bytes]:
    """Yield the lines after `offset`; a line over `MAX_LINE` comes in parts."""
    with os.fdopen(os.dup(file.descriptor), "rb") as reader:
        reader.seek(offset)
        while offset < file.size:
            line = reader.readline(min(MAX_LINE, file.size - offset))
            if not line:
                return
            offset += len(line)
            yield line
