"""Collects changes until nothing has changed for a while. Pure: the caller brings the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PATHS = 1_000
"""The number of changed files that are kept by name; others are only counted."""

MAX_DEBOUNCES = 20
"""Files that never stop changing are reported after this many quiet times."""

RETRY_MS = 1_000
"""The delay before changes that were put back can be taken again."""


class Changes(msgspec.Struct, frozen=True):
    """The changed files, of which at most `MAX_PATHS` are named, and their number."""

    paths: tuple[str, ...]
    count: int


class Debounce:
    """Collects changes until nothing has changed for a while."""

    def __init__(self, quiet_ms: int) -> None:
        self._quiet_ms = quiet_ms
        self._paths: dict[str, None] = {}
        self._left_out = 0
        self._first_ms = 0
        self._last_ms = 0
        self._not_before_ms = 0

    def changed(self, paths: Iterable[str], now_ms: int) -> None:
        """Add changes."""
        for path in paths:
            if not self._paths:
                self._first_ms = now_ms
            if path in self._paths or len(self._paths) < MAX_PATHS:
                self._paths[path] = None
            else:
                self._left_out += 1
            self._last_ms = now_ms

    def wait_ms(self, now_ms: int) -> int | None:
        """Return the time until changes can be taken; None without any change."""
        if not self._paths:
            return None
        quiet = self._last_ms + self._quiet_ms
        latest = self._first_ms + MAX_DEBOUNCES * self._quiet_ms
        return max(0, max(min(quiet, latest), self._not_before_ms) - now_ms)

    def take(self, now_ms: int) -> Changes | None:
        """Return the changes if it is time, and start again."""
        if self.wait_ms(now_ms) != 0:
            return None
        changes = Changes(tuple(sorted(self._paths)), len(self._paths) + self._left_out)
        self._paths, self._left_out = {}, 0
        return changes

    def put_back(self, changes: Changes, now_ms: int) -> None:
        """Put back changes that could not be used; they can be taken again after `RETRY_MS`."""
        self.changed(changes.paths, now_ms)
        self._left_out += changes.count - len(changes.paths)
        self._not_before_ms = now_ms + RETRY_MS
