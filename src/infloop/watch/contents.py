"""Knows the content of files by hash, so that a write that changes nothing is no change."""

from __future__ import annotations

import os
from hashlib import blake2b
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from infloop.watch.scanning import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infloop.watch.targets import Scope

_LARGE_BYTES = 32 << 20
_PIECE_BYTES = 1 << 20


class Change(NamedTuple):
    """A file whose content differs.

    At least `written` bytes were written to it, unless a part was replaced in place: its size, or
    what was appended. 0 means that nothing is known: it is gone, or too large to be read.
    """

    path: str
    written: int = 0


class _Content(NamedTuple):
    """What is known of a file; without a size it does not exist."""

    size: int
    digest: bytes


_GONE = _Content(-1, b"")


class Contents:
    """The content of the files that count, below one root.

    `counts` decides by a file's relative path.
    """

    def __init__(self, root: str, scope: Scope, counts: Callable[[str], bool]) -> None:
        self._root = root
        self._scope = scope
        self._counts = counts
        self._known: dict[str, _Content] = {}

    def learn(self, before_ns: int) -> None:
        """Remember the files that were last changed before this time; may run in a thread.

        The change of a newer file may not have been reported yet. It stays unknown, so that the
        report counts.
        """
        for path, version in versions(self._root, self._scope):
            if version[0] < before_ns and self._counts(path):
                content, _ = self._read(path, _GONE)
                if content is not None:
                    self._known.setdefault(path, content)

    def changed(self, paths: Iterable[str]) -> list[Change]:
        """Return the files among `paths` whose content differs, sorted, and remember it.

        A path with a slash at its end stands for all known files below it, and an empty path for
        all files.
        """
        found = []
        for path in self._files(paths):
            before = self._known.get(path, _GONE)
            content, appended = self._read(path, before)
            if content is None or content == before:
                continue
            if content == _GONE:
                del self._known[path]
            else:
                self._known[path] = content
            known = 0 <= content.size <= _LARGE_BYTES
            found.append(Change(path, content.size - before.size * appended if known else 0))
        return sorted(found)

    def _files(self, paths: Iterable[str]) -> set[str]:
        files: set[str] = set()
        gone: list[str] = []
        for path in paths:
            if not path:
                files.update(self._known)
                files.update(each for each, _ in versions(self._root, self._scope))
            elif path.endswith("/"):
                gone.append(path)
            else:
                files.add(path)
        if gone:
            below = tuple(gone)
            files.update(each for each in list(self._known) if each.startswith(below))
        return {path for path in files if self._counts(path)}

    def _read(self, path: str, before: _Content) -> tuple[_Content | None, bool]:
        """Return the content, and whether it is what was there before with something appended.

        The content is None for what is not a regular file or cannot be read.
        """
        try:
            descriptor = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return _GONE, False
        except OSError:
            return None, False
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                return None, False
            if status.st_size > _LARGE_BYTES:
                return _Content(status.st_size, f"{status.st_mtime_ns}".encode()), False
            return _hashed(descriptor, before)
        except OSError:
            return None, False
        finally:
            os.close(descriptor)


def _hashed(descriptor: int, before: _Content) -> tuple[_Content, bool]:
    made, size, appended = blake2b(digest_size=16), 0, False
    while True:
        # The first part is read as far as the content before, to compare it with that.
        left = before.size - size
        piece = os.read(descriptor, min(_PIECE_BYTES, left) if left > 0 else _PIECE_BYTES)
        if not piece:
            return _Content(size, made.digest()), appended
        made.update(piece)
        size += len(piece)
        if size == before.size:
            appended = made.digest() == before.digest
