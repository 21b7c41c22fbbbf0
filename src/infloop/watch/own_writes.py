"""Tells which file changes a run made itself. Pure: the caller brings the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Window(msgspec.Struct):
    """The time of a run, and the directories it wrote to."""

    trigger_id: str
    directories: tuple[str, ...]
    ended_ms: int | None = None


class OwnWrites(msgspec.Struct):
    """Tells which changes a run of the trigger made itself.

    - They are in the run's directories, during the run or up to `grace_ms` after it, because a
      change is noticed late.
    - The directory of a run in a worktree is the worktree, so a person's changes in the watched
      directory count.
    - Paths are resolved, without links.
    """

    grace_ms: int = 2_000
    _windows: dict[str, _Window] = msgspec.field(default_factory=dict)

    def began(self, trigger_id: str, run_id: str, directories: Iterable[str]) -> None:
        """Record that a run of the trigger is active, and the directories it works in."""
        roots = tuple(directory.rstrip("/") for directory in directories)
        self._windows[run_id] = _Window(trigger_id, roots)

    def ended(self, run_id: str, now_ms: int) -> None:
        """Record that the run ended; its changes may still be noticed."""
        if run_id in self._windows:
            self._windows[run_id].ended_ms = now_ms

    def owns(self, trigger_id: str, path: str, now_ms: int) -> bool:
        """Tell whether a run of the trigger itself made a change that was noticed now."""
        self._forget(now_ms)
        return any(
            window.trigger_id == trigger_id
            and any(path == root or path.startswith(f"{root}/") for root in window.directories)
            for window in self._windows.values()
        )

    def _forget(self, now_ms: int) -> None:
        for run_id, window in list(self._windows.items()):
            if window.ended_ms is not None and now_ms - window.ended_ms > self.grace_ms:
                del self._windows[run_id]
