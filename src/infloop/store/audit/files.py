"""The audit log's files: `audit.jsonl`, and those before it, `audit-000001.jsonl` and so on.

Rules
  * Whoever writes holds the lock of the directory, for one write; durability is waited for without.
  * A full file is renamed, and an entry in the new one names it. Whoever finds an empty file behind
    a full one writes that entry, so it does not matter when a process dies.
  * A last line that is cut off is moved into a file of its own, named after the hash it would have
    followed. Whoever finds such a file with the log still at that hash writes the entry that names
    it, so it does not matter when a process dies here either.
  * What cannot be written whole is taken back.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, contextmanager, suppress
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
    """A file of the log as it was when the log was looked at."""

    name: str
    descriptor: int
    size: int


class _End(NamedTuple):
    """Where the log ends: in which file, after how many bytes, with which hash."""

    inode: int
    size: int
    last: str


class AuditFiles:
    """Writes the log; one thread of this process at a time, and any number of processes.

    A file is at most `max_bytes` long, unless what is written at once is longer; of at least two
    files, `max_files` are kept.
    """

    def __init__(self, directory: Path, *, max_bytes: int, max_files: int) -> None:
        self._directory = directory
        self._current = directory / CURRENT
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._end: _End | None = None
        self._durable = True

    def append(self, facts: Sequence[AuditEvent], *, durable: bool) -> None:
        """Write facts as the next entries, all or none; raise AuditError if that cannot be done.

        What is not `durable` survives the death of the process, and that of the machine from the
        next durable entry on.
        """
        with _explained(self._directory), ExitStack() as opened:
            if self._end is None:
                private_directory(self._directory)
            with lock_directory(self._directory, _LOCK_SECONDS, "writing the audit log"):
                descriptor = self._open(opened)
                end = self._settle(descriptor)
                own, lines, last = self._lines(end, facts)
                if end.size and end.size + len(lines) > self._max_bytes:
                    self._rotate(descriptor)
                    descriptor = self._open(opened)
                    end = self._settle(descriptor)
                    own, lines, last = self._lines(end, facts)
                self._write(descriptor, end, lines, last)
            if durable or own:
                os.fsync(descriptor)
                self._durable = True

    def append_at_once(self, facts: Sequence[AuditEvent]) -> bool:
        """Write facts as `append` does, not durably, unless there is anything to wait for or to do.

        Says whether they are written. There is, when another process writes or has written, and
        when the file is full.
        """
        with _explained(self._directory), ExitStack() as opened:
            if self._end is None or not opened.enter_context(try_lock_directory(self._directory)):
                return False
            descriptor = self._open(opened)
            end = self._settle(descriptor)
            _, lines, last = self._lines(end, facts)
            if end is not self._end or end.size + len(lines) > self._max_bytes:
                return False
            self._write(descriptor, end, lines, last)
        return True

    def sync(self) -> None:
        """Make what has been written durable."""
        if self._durable:
            return
        with _explained(self._directory), ExitStack() as opened, suppress(FileNotFoundError):
            os.fsync(_open_to_read(self._current, opened))

    def _open(self, opened: ExitStack) -> int:
        descriptor = os.open(self._current, _FLAGS, FILE_MODE)
        opened.callback(os.close, descriptor)
        os.fchmod(descriptor, FILE_MODE)
        return descriptor

    def _lines(self, end: _End, facts: Sequence[AuditEvent]) -> tuple[bool, bytes, str]:
        """Return whether the log says something of itself, all that it says, and the last hash."""
        own = [*self._about_itself(end, facts[0].time)]
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
        """Give the full file its number, and remove those that are too many with it."""
        os.fsync(descriptor)
        before = earlier_files(self._directory)
        number = _number(before[-1].name) + 1 if before else 1
        self._current.rename(self._directory / f"{_EARLIER}{number:06d}{_SUFFIX}")
        for old in earlier_files(self._directory)[: 1 - self._max_files]:
            old.unlink()
        sync_directory(self._directory)

    def _settle(self, descriptor: int) -> _End:
        """Return where the log ends, after setting aside a last line that is cut off."""
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

    def _about_itself(self, end: _End, time: str) -> Iterator[AuditEvent]:
        """Yield what the log has to say of itself before anything else is written."""
        if end is self._end:
            return  # nothing happened since it was last looked at
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
        with suppress(OSError):  # then whoever writes next finds a line that is cut off
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
    """Open all files of the log, oldest first, as they are at one moment."""
    with _explained(directory), ExitStack() as opened:
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
    """Yield the lines before `end` with their line ends, the last one first."""
    rest = b""
    while end > 0:
        start = max(0, end - _BLOCK)
        data = os.pread(descriptor, end - start, start) + rest
        cut = data.find(b"\n") + 1 if start else 0
        if start and not cut:
            cut = len(data)
        rest, whole, end = data[:cut], data[cut:], start
        *lines, unended = whole.split(b"\n")
        if unended:
            yield unended
        yield from (line + b"\n" for line in reversed(lines))


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Let whatever keeps the log from being used be an AuditError."""
    try:
        yield
    except StoreError as error:
        raise AuditError(str(error)) from error
    except OSError as error:
        raise AuditError(
            f"the audit log in {str(directory)!r} cannot be used: {error}; "
            "check its owner and mode, and the free space of the disk"
        ) from error
