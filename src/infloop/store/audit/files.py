"""The audit log's files: `audit.jsonl`, and those before it, `audit-000001.jsonl` and so on.

Rules:

- A process holds the lock of the directory during one write, but not while it waits for fsync.
- A full file is renamed, and the first entry of the new file names it. The next writer that finds
  an empty file after a full one writes that entry, so a crash in between does no harm.
- A truncated last line is moved into a separate file, which is named after the hash that precedes
  it. The next writer that finds such a file at the end of the log writes an entry that names it, so
  a crash in between does no harm.
- A partial write is undone.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, contextmanager, suppress
from stat import S_IMODE
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import AuditError, StoreError
from infloop.lowlevel.directory_lock import lock_directory, try_lock_directory
from infloop.model.audit import SYSTEM, AuditEvent, EventName
from infloop.store.audit.hash_chain import FIRST_PREV, hash_of, seal
from infloop.store.files import FILE_MODE, private_directory, sync_directory, write_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from infloop.model.values import JsonValue

CURRENT = "audit.jsonl"

_LOCK_SECONDS = 10.0
_BLOCK = 64 << 10
_EARLIER = "audit-"
_SUFFIX = ".jsonl"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class OpenFile(NamedTuple):
    """A file of the log, with its size when it was opened."""

    name: str
    descriptor: int
    size: int


class _End(NamedTuple):
    """The end of the log: the file, its size, and the hash of the last line."""

    inode: int
    size: int
    last: str


class AuditFiles:
    """Writes the log. Any number of processes may do so, but only one thread of each.

    A file has at most `max_bytes`, unless a single write is longer. `max_files` are kept, at least
    two.
    """

    def __init__(self, directory: Path, *, max_bytes: int, max_files: int) -> None:
        self._directory = directory
        self._current = directory / CURRENT
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._end: _End | None = None
        self._durable = True

    def append(self, facts: Sequence[AuditEvent], *, durable: bool) -> None:
        """Append entries, all or none; raises AuditError.

        Without `durable` they survive the death of the process, but a power failure only after the
        next durable append.
        """
        with _audit_errors(self._directory), ExitStack() as opened:
            if self._end is None:
                private_directory(self._directory)
            with lock_directory(self._directory, _LOCK_SECONDS, "writing the audit log"):
                descriptor = self._open(opened)
                end = self._find_end(descriptor)
                own, lines, last = self._lines(end, facts)
                if end.size and end.size + len(lines) > self._max_bytes:
                    self._rotate(descriptor)
                    descriptor = self._open(opened)
                    end = self._find_end(descriptor)
                    own, lines, last = self._lines(end, facts)
                self._write(descriptor, end, lines, last)
            if durable or own:
                os.fsync(descriptor)
                self._durable = True

    def append_without_waiting(self, facts: Sequence[AuditEvent]) -> bool:
        """Append entries, not durably, if that takes no waiting; return whether it was done.

        It is not done when another process is writing or has written, or when the file is full.
        """
        with _audit_errors(self._directory), ExitStack() as opened:
            if self._end is None or not opened.enter_context(try_lock_directory(self._directory)):
                return False
            descriptor = self._open(opened)
            end = self._find_end(descriptor)
            _, lines, last = self._lines(end, facts)
            if end is not self._end or end.size + len(lines) > self._max_bytes:
                return False
            self._write(descriptor, end, lines, last)
        return True

    def sync(self) -> None:
        """Make all written entries durable."""
        if self._durable:
            return
        with _audit_errors(self._directory), ExitStack() as opened, suppress(FileNotFoundError):
            os.fsync(_open_to_read(self._current, opened))

    def _open(self, opened: ExitStack) -> int:
        descriptor = os.open(self._current, _FLAGS, FILE_MODE)
        opened.callback(os.close, descriptor)
        if S_IMODE(os.fstat(descriptor).st_mode) != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
        return descriptor

    def _lines(self, end: _End, facts: Sequence[AuditEvent]) -> tuple[bool, bytes, str]:
        """Return whether there are entries about the log itself, all lines, and the last hash."""
        own = [*self._own_entries(end, facts[0].time)]
        last, lines = end.last, list[bytes]()
        for each in (*own, *facts):
            line, last = seal(each, last)
            lines.append(line)
        return bool(own), b"".join(lines), last

    def _write(self, descriptor: int, end: _End, lines: bytes, last: str) -> None:
        self._end = None
        self._durable = False
        _write_whole(descriptor, lines, end.size)
        if end.size == 0:
            sync_directory(self._directory)
        self._end = _End(end.inode, end.size + len(lines), last)

    def _rotate(self, descriptor: int) -> None:
        """Rename the full file and delete the oldest files beyond `max_files`."""
        os.fsync(descriptor)
        before = earlier_files(self._directory)
        number = _number(before[-1].name) + 1 if before else 1
        self._current.rename(self._directory / f"{_EARLIER}{number:06d}{_SUFFIX}")
        for old in earlier_files(self._directory)[: 1 - self._max_files]:
            old.unlink()
        sync_directory(self._directory)

    def _find_end(self, descriptor: int) -> _End:
        """Return the end of the log; a truncated last line is moved to a separate file first."""
        status = os.fstat(descriptor)
        known = self._end
        if known and (known.inode, known.size) == (status.st_ino, status.st_size):
            return known
        lines = lines_backwards(descriptor, status.st_size)
        line, piece = next(lines, b""), b""
        if line and not line.endswith(b"\n"):
            line, piece = next(lines, b""), line
        last = hash_of(line) if line else self._last_of_earlier()
        if piece:
            write_private(self._directory / _piece_name(last, piece), piece)
            os.ftruncate(descriptor, status.st_size - len(piece))
        return _End(status.st_ino, status.st_size - len(piece), last)

    def _last_of_earlier(self) -> str:
        for file in reversed(earlier_files(self._directory)):
            with ExitStack() as opened:
                descriptor = _open_to_read(file, opened)
                for line in lines_backwards(descriptor, os.fstat(descriptor).st_size):
                    return hash_of(line)
        return FIRST_PREV

    def _own_entries(self, end: _End, time: str) -> Iterator[AuditEvent]:
        """Yield the entries about a rotation or repair that must come first."""
        if end is self._end:
            return  # no other process has written
        before = earlier_files(self._directory)
        if end.size == 0 and before:
            yield _own("audit.rotated", time, {"before": before[-1].name})
        pieces = sorted(file.name for file in self._directory.glob(_piece_name(end.last)))
        if pieces:
            yield _own("audit.repaired", time, {"pieces": [*pieces]})


def _own(event: EventName, time: str, details: dict[str, JsonValue]) -> AuditEvent:
    return AuditEvent(time, event, SYSTEM, details=details)


def _piece_name(last: str, piece: bytes | None = None) -> str:
    which = "*" if piece is None else hashlib.sha256(piece).hexdigest()[:16]
    return f"piece-{last[:16]}-{which}"


def _write_whole(descriptor: int, data: bytes, size: int) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        with suppress(OSError):  # if this fails, the next writer finds a truncated line
            os.ftruncate(descriptor, size)
        raise


def earlier_files(directory: Path) -> list[Path]:
    """Return the files before the current one, oldest first."""
    found = [path for path in directory.glob(f"{_EARLIER}*{_SUFFIX}") if _number(path.name)]
    return sorted(found, key=lambda path: _number(path.name))


def _number(name: str) -> int:
    digits = name.removeprefix(_EARLIER).removesuffix(_SUFFIX)
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


@contextmanager
def open_log(directory: Path) -> Iterator[list[OpenFile]]:
    """Open all files of the log, oldest first, as a consistent snapshot."""
    with _audit_errors(directory), ExitStack() as opened:
        files: list[OpenFile] = []
        if directory.is_dir():
            with lock_directory(directory, _LOCK_SECONDS, "writing the audit log"):
                for path in (*earlier_files(directory), directory / CURRENT):
                    with suppress(FileNotFoundError):
                        descriptor = _open_to_read(path, opened)
                        size = os.fstat(descriptor).st_size
                        files.append(OpenFile(path.name, descriptor, size))
        yield files


def _open_to_read(path: Path, opened: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor


def lines_backwards(descriptor: int, end: int) -> Iterator[bytes]:
    """Yield the lines before `end` with their newlines, last line first."""
    rest = b""
    while end > 0:
        start = max(0, end - _BLOCK)
        data = os.pread(descriptor, end - start, start) + rest
        cut = data.find(b"\n") + 1 if start else 0
        if start and not cut:
            cut = len(data)
        rest, whole, end = data[:cut], data[cut:], start
        *lines, unterminated = whole.split(b"\n")
        if unterminated:
            yield unterminated
        yield from (line + b"\n" for line in reversed(lines))


@contextmanager
def _audit_errors(directory: Path) -> Iterator[None]:
    """Turn errors of the file system into AuditError."""
    try:
        yield
    except StoreError as error:
        raise AuditError(str(error)) from error
    except OSError as error:
        raise AuditError(
            f"the audit log in {str(directory)!r} cannot be used: {error}; "
            "check its owner and mode, and the free space of the disk"
        ) from error
