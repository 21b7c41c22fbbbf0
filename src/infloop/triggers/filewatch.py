"""Decides which file changes start a workflow and when: patterns, quiet time, a run's own writes.

Nothing here uses a disk or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infloop.model.patterns import BadPattern, compile_pattern, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from infloop.model.trigger import Watch

MAX_PATHS = 1_000
"""The number of changed files that are passed to a run by name; others are only counted."""

MAX_DEBOUNCES = 20
"""Files that never stop changing start a run after this many quiet times."""

RETRY_MS = 1_000
"""The delay before a failed start is tried again."""

_MAX_GLOBS = 100
_LONGEST_GLOB = 500
# Directories of version control, and temporary files of editors.
_ALWAYS_IGNORED = ("**/.git/**", "**/.hg/**", "**/.svn/**", "**/.infloop-worktrees/**")
_EDITOR_FILES = ("**/*~", "**/.#*", "**/*.sw?", "**/4913", "**/.*.tmp")


class BadGlob(ValueError):
    """A file pattern is invalid; the text says why."""


class FileFilter:
    """Decides which files of a directory count."""

    def __init__(self, watch: Watch) -> None:
        if len(watch.globs) + len(watch.ignore) > _MAX_GLOBS:
            raise BadGlob(f"more than {_MAX_GLOBS} patterns; join some of them")
        try:
            self._wanted = compile_pattern(_any_of(watch.globs))
            self._ignored = compile_pattern(
                _any_of((*_ALWAYS_IGNORED, *_EDITOR_FILES, *watch.ignore))
            )
        except BadPattern as error:
            raise BadGlob(
                f"the patterns are too complex: {error}; use fewer or shorter ones"
            ) from None

    def counts(self, path: str) -> bool:
        """Tell whether a change of the file at `path`, relative to the directory, counts."""
        try:
            wanted = self._wanted.fullmatch(path) is not None
            return wanted and self._ignored.fullmatch(path) is None
        except UnicodeError:  # a name that is not valid text
            return False


def _any_of(globs: Sequence[str]) -> str:
    return "(?s:" + "|".join(map(_pattern, globs)) + ")"


def _pattern(glob: str) -> str:
    """Return a glob as a regular expression: `*` stays within a directory, `**` does not."""
    if not glob or len(glob) > _LONGEST_GLOB or glob.startswith("/"):
        raise BadGlob(f"{glob[:60]!r} is not a pattern for files below the directory")
    if ".." in glob.split("/") or any(char in glob for char in "{}\\\0"):
        raise BadGlob(f"{glob!r}: no '..', braces or backslashes; write two patterns instead")
    return (
        "/".join(map(_segment, glob.split("/"))).replace("\0/", "(?:[^/]+/)*").replace("\0", ".+")
    )


def _segment(text: str) -> str:
    if text == "**":
        return "\0"
    if "**" in text:
        raise BadGlob(f"{text!r}: '**' must be alone between slashes")
    made, rest = "", text
    while rest:
        char, rest = rest[0], rest[1:]
        if char == "*":
            made += "[^/]*"
        elif char == "?":
            made += "[^/]"
        elif char == "[":
            chosen, closed, rest = rest.partition("]")
            made += _choice(chosen, closed, text)
        else:
            made += quote(char)
    return made


def _choice(chosen: str, closed: str, text: str) -> str:
    """Return `[a-z]` or `[!a-z]` as a regular expression."""
    inside = chosen.removeprefix("!")
    if not closed or not inside or not all(char.isalnum() or char in "-_." for char in inside):
        raise BadGlob(f"{text!r}: write a choice as [abc], [a-z] or [!abc]")
    return f"[^/{inside}]" if chosen != inside else f"[{inside}]"


@dataclass(frozen=True, slots=True)
class Changes:
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


@dataclass(slots=True)
class _Window:
    """The time of a run, and the directories it wrote to."""

    trigger_id: str
    directories: tuple[str, ...]
    ended_ms: int | None = None


@dataclass(slots=True)
class OwnWrites:
    """Tells which changes a run of the trigger made itself.

    - They are in the run's directories, during the run or up to `grace_ms` after it, because a
      change
      is noticed late.
    - The directory of a run in a worktree is the worktree, so a person's changes in the watched
      directory count.
    - Paths are resolved, without links.
    """

    grace_ms: int = 2_000
    _windows: dict[str, _Window] = field(default_factory=dict)

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
