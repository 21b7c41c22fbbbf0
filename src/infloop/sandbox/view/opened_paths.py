"""Opens the paths that a child may reach, so that its confinement can be compared with them.

A path is opened once, without following links. What is mounted or entered by that name later must
be the same file or directory. It is kept open until then, because the kernel could otherwise give
its inode number to another one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infloop.lowlevel.link_free import open_link_free
from infloop.sandbox.spawn_request import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.sandbox.spawn_request import PlaceKind


class OpenedPaths:
    """The paths of one child; `close` can be called twice."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._found: dict[str, tuple[int, int]] = {}

    def open(self, path: str) -> str:
        """Open a path and return it normalized; raise OSError if it is missing or has a link."""
        plain = os.path.normpath(path)
        if plain not in self._found:
            descriptor = open_link_free(plain)
            self._descriptors.append(descriptor)
            status = os.fstat(descriptor)
            self._found[plain] = status.st_dev, status.st_ino
        return plain

    def open_existing(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Open the paths that exist and return them normalized; LinkInPathError for a link."""
        return tuple(plain for path in paths if (plain := self._open_if_it_exists(path)))

    def place(self, kind: PlaceKind, opened: str, path: str = "") -> Place:
        """Return that the opened path must be found at `path`, or at its own."""
        return Place(kind, *self._found[opened], path or opened)

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _open_if_it_exists(self, path: str) -> str:
        try:
            return self.open(path)
        except (FileNotFoundError, NotADirectoryError):
            return ""
