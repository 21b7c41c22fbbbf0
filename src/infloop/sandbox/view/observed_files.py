"""Looks at files and remembers what it saw, so that a later look tells whether it is different.

Whatever is decided from these looks can be kept until `unchanged` says no. What is remembered:

- Of every path that was asked for, and of every path that was visited on the way, link after link:
  that it does not exist, or which directory it is, or, for files and links, all that `lstat` says.
- Of a directory that was listed, when it was last changed.

The change time (ctime) is decisive, because no program can set it. What was changed a moment before
it was seen may change again without a visible difference: such looks are not `settled`, and nothing
that was decided from them may be kept.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.lowlevel.link_free import visited_paths

if TYPE_CHECKING:
    from collections.abc import Collection

_TICK_NS = 2_000_000_000
"""Some file systems have a resolution of two seconds."""

_Seen: TypeAlias = "tuple[int, ...] | None"


class Entry(NamedTuple):
    """An entry of a directory."""

    path: str
    is_link: bool
    is_file: bool


class ObservedFiles:
    """What was seen since `began_ns`, now if it is not given."""

    def __init__(self, began_ns: int = 0) -> None:
        self._began_ns = began_ns or time.time_ns()
        self._paths: dict[str, _Seen] = {}
        self._listed: dict[str, _Seen] = {}
        self._visited: dict[str, tuple[str, ...]] = {}
        self._real: dict[str, str] = {}
        self._newest = 0

    @property
    def settled(self) -> bool:
        """Whether everything had its last change long enough before it was seen."""
        return self._newest + _TICK_NS < self._began_ns

    def unchanged(self) -> bool:
        """Say whether everything is as it was seen."""
        return all(_look(path) == seen for path, seen in self._paths.items()) and all(
            _look(path, listed=True) == seen for path, seen in self._listed.items()
        )

    def visited(self, path: str) -> tuple[str, ...]:
        """Return every path that is visited when this one is resolved, link after link."""
        found = self._visited.get(path)
        if found is None:
            found = self._visited[path] = tuple(visited_paths(path))
            for step in found:
                if step not in self._paths:
                    self._paths[step] = self._noted(_look(step))
        return found

    def passes_through(self, path: str, directories: Collection[str]) -> bool:
        """Return whether resolving a path passes through one of the directories."""
        return any(is_below(step, directories) for step in self.visited(path))

    def real(self, path: str) -> str:
        """Return a path without links."""
        found = self._real.get(path)
        if found is None:
            self.visited(path)
            found = self._real[path] = os.path.realpath(path)
        return found

    def link_target(self, path: str) -> str:
        """Return what a link holds; empty if it is none."""
        self.visited(path)
        try:
            return os.readlink(path)  # noqa: PTH115  (called for every child)
        except OSError:
            return ""

    def exists(self, path: str) -> bool:
        self.visited(path)
        return os.path.exists(path)  # noqa: PTH110

    def is_executable(self, path: str) -> bool:
        """Return whether a path leads to a file that can be executed."""
        self.visited(path)
        try:
            return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK)  # noqa: PTH116
        except OSError:
            return False

    def can_be_run(self, path: str) -> bool:
        """Return whether a path leads to anything that may be executed or entered."""
        self.visited(path)
        return os.access(path, os.X_OK)

    def entries(self, directory: str) -> list[Entry]:
        """Return what is in a directory, in order; nothing if it cannot be listed."""
        real = self.real(directory)
        if real not in self._listed:
            self._listed[real] = self._noted(_look(real, listed=True))
        try:
            with os.scandir(directory) as listing:
                return sorted(
                    Entry(each.path, each.is_symlink(), each.is_file(follow_symlinks=False))
                    for each in listing
                )
        except OSError:
            return []

    def first_line(self, path: str, most: int) -> bytes:
        """Return the beginning of a file up to the end of its first line."""
        self.visited(path)
        with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            return file.readline(most)
        return b""

    def content(self, path: str, most: int) -> bytes:
        """Return the beginning of a file; empty if it cannot be read."""
        self.visited(path)
        with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            return file.read(most)
        return b""

    def _noted(self, seen: _Seen) -> _Seen:
        if seen and len(seen) > _DIRECTORY_FIELDS:
            self._newest = max(self._newest, seen[-1])
        return seen


_DIRECTORY_FIELDS = 3


def _look(path: str, *, listed: bool = False) -> _Seen:
    """Return what is at a path, the change time last; None if nothing can be seen there.

    A directory on the way changes with each of its entries, and those that matter are seen too.
    """
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    which = (status.st_dev, status.st_ino, status.st_mode)
    if stat.S_ISDIR(status.st_mode) and not listed:
        return which
    return (*which, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_below(path: str, directories: Collection[str]) -> bool:
    """Return whether a path is one of the directories or in one of them."""
    return any(path == each or path.startswith(f"{each}/") for each in directories)
