"""Knows the content of files by hash, so that a write that changes nothing is no change."""

from __future__ import annotations

import os
from hashlib import blake2b
from stat import S_ISREG
from typing import TYPE_CHECKING

from infloop.watch.scanning import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infloop.watch.targets import Scope

_LARGE_BYTES = 32 << 20
_PIECE_BYTES = 1 << 20
_GONE = b"gone"


class Contents:
    """The content of the files that count, below one root.

    `counts` decides by a file's relative path.
    """

    def __init__(self, root: str, scope: Scope, counts: Callable[[str], bool]) -> None:
        self._root = root
        self._scope = scope
        self._counts = counts
        self._known: dict[str, bytes] = {}

    def learn(self, before_ns: int) -> None:
        """Remember the files that were last changed before this time; may run in a thread.

        The change of a newer file may not have been reported yet. It stays unknown, so that the
        report counts.
        """
        for path, version in scan(self._root, self._scope):
            if version and version[0] < before_ns and self._counts(path):
                digest = self._digest(path)
                if digest is not None:
                    self._known.setdefault(path, digest)

    def changed(self, paths: Iterable[str]) -> list[str]:
        """Return the files among `paths` whose content differs, sorted, and remember it.

        A path with a slash at its end stands for all known files below it, and an empty path for
        all files.
        """
        found = set()
        for path in self._files(paths):
            digest = self._digest(path)
            if digest is not None and digest != self._known.get(path):
                if digest == _GONE:
                    if self._known.pop(path, None) is None:
                        continue  # it appeared and disappeared
                else:
                    self._known[path] = digest
                found.add(path)
        return sorted(found)

    def _files(self, paths: Iterable[str]) -> set[str]:
        files: set[str] = set()
        gone: list[str] = []
        for path in paths:
            if not path:
                files.update(self._known)
                found = scan(self._root, self._scope)
                files.update(each for each, version in found if version and self._counts(each))
            elif path.endswith("/"):
                gone.append(path)
            elif self._counts(path):
                files.add(path)
        if gone:
            below = tuple(gone)
            files.update(each for each in list(self._known) if each.startswith(below))
        return files

    def _digest(self, path: str) -> bytes | None:
        """Return a hash of the content; None for what is not a regular file or cannot be read."""
        try:
            descriptor = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return _GONE
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                return None
            if status.st_size > _LARGE_BYTES:
                return f"{status.st_size} {status.st_mtime_ns}".encode()
            made = blake2b(digest_size=16)
            while piece := os.read(descriptor, _PIECE_BYTES):
                made.update(piece)
            return made.digest()
        except OSError:
            return None
        finally:
            os.close(descriptor)
