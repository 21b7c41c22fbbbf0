"""Reading the audit log: its newest entries, what is added to it, and whether it is intact.

Everything here sees all files of the log at one moment, whoever writes and rotates meanwhile. It
blocks: call it in a thread.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from infloop.store.audit.files import CURRENT, OpenFile, lines_backwards, open_log
from infloop.store.audit.hash_chain import FIRST_PREV, flaw_of, hash_of, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infloop.model.audit import AuditEntry, AuditFilter

MOST_LINE = 1 << 20
"""Bytes of a line; an entry is far shorter."""


class Found(NamedTuple):
    """Entries, the newest first, and how many of the lines that were read hold none."""

    entries: list[AuditEntry]
    unreadable: int


def newest(directory: Path, wanted: AuditFilter, limit: int) -> Found:
    """Return the newest entries that are wanted, at most `limit`."""
    entries: list[AuditEntry] = []
    unreadable = 0
    with open_log(directory) as files:
        for file in reversed(files):
            for line in lines_backwards(file.descriptor, file.size):
                if len(entries) >= limit:
                    return Found(entries, unreadable)
                entry = read_line(line)
                if entry is None:
                    unreadable += 1
                elif wanted.includes(entry):
                    entries.append(entry)
    return Found(entries, unreadable)


class Follower:
    """A place in the log that moves on with it; begins at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: OpenFile | None = None
        for _ in self._new_lines():
            pass

    def read(self, wanted: AuditFilter) -> list[AuditEntry]:
        """Return the wanted entries since the last call, the oldest first."""
        if self._is_where_it_was():
            return []
        entries = map(read_line, self._new_lines())
        return [entry for entry in entries if entry is not None and wanted.includes(entry)]

    def close(self) -> None:
        """Let go of the file."""
        if self._seen is not None:
            os.close(self._seen.descriptor)
            self._seen = None

    def _is_where_it_was(self) -> bool:
        try:
            status = (self._directory / CURRENT).stat()
        except FileNotFoundError:
            return True
        seen = self._seen
        return (
            seen is not None
            and os.fstat(seen.descriptor).st_ino == status.st_ino
            and seen.size == status.st_size
        )

    def _new_lines(self) -> Iterator[bytes]:
        with open_log(self._directory) as files:
            inodes = [os.fstat(file.descriptor).st_ino for file in files]
            begin, offset = 0, 0
            if self._seen is not None:
                inode = os.fstat(self._seen.descriptor).st_ino
                if inode in inodes:
                    begin, offset = inodes.index(inode), self._seen.size
            for file in files[begin:]:
                for line in _lines(file, offset):
                    if line.endswith(b"\n"):  # else it was cut off, and will be set aside
                        offset += len(line)
                        yield line
                self._stand_in(file, offset)
                offset = 0

    def _stand_in(self, file: OpenFile, offset: int) -> None:
        # An open file keeps its number: no later one is taken for it.
        self.close()
        self._seen = OpenFile(file.name, os.dup(file.descriptor), offset)


@dataclass(frozen=True, slots=True)
class Flaw:
    """The first line that is not as it was written: where, and what is wrong with it."""

    file: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many entries are intact, in how many files, and the hash of the last of them."""

    entries: int
    files: int
    last: str
    flaw: Flaw | None = None


def verify(directory: Path) -> Verdict:
    """Read the whole log; name the first line that was changed, or does not follow the one before.

    A log that was cut off at its end is intact: compare `last` with one that was noted elsewhere.
    """
    count, prev = 0, None
    with open_log(directory) as files:
        for file in files:
            for number, line in enumerate(_lines(file, 0), 1):
                why = flaw_of(line, prev)
                if why:
                    last = prev or FIRST_PREV
                    return Verdict(count, len(files), last, Flaw(file.name, number, why))
                count, prev = count + 1, hash_of(line)
    return Verdict(count, len(files), prev or FIRST_PREV)


def _lines(file: OpenFile, offset: int) -> Iterator[bytes]:
    """Yield the lines behind `offset`; one that is too long, in parts."""
    with os.fdopen(os.dup(file.descriptor), "rb") as reader:
        reader.seek(offset)
        while offset < file.size:
            line = reader.readline(min(MOST_LINE, file.size - offset))
            if not line:
                return
            offset += len(line)
            yield line
