"""Changes to files, as lines to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.terminal import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.workspace.snapshots.changes import Change

_WORDS = {"added": "added", "deleted": "deleted", "mode": "permissions", "type": "another type"}


def change_lines(changes: Sequence[Change], most: int | None = None) -> list[str]:
    """Return a line for each path, and how many more there are than `most`."""
    shown = changes[:most]
    width = max((len(change.printable_path) for change in shown), default=0)
    lines = [f"  {change.printable_path:<{width}}  {_what(change)}".rstrip() for change in shown]
    more = len(changes) - len(shown)
    return [*lines, f"  … and {more} more"] if more else lines


def total(changes: Sequence[Change]) -> str:
    """Return all of them in a few words: `3 files changed, +10 -2`."""
    insertions = sum(change.insertions for change in changes)
    deletions = sum(change.deletions for change in changes)
    return changed(len(changes), insertions, deletions)


def changed(files: int, insertions: int, deletions: int) -> str:
    """Return how much changed: `1 file changed, +10 -2`."""
    return f"{plural(files, 'file')} changed{_lines(insertions, deletions, ', ')}"


def _what(change: Change) -> str:
    words = _WORDS.get(change.kind, "")
    if change.binary:
        return f"{words}  binary".lstrip()
    return f"{words}{_lines(change.insertions, change.deletions, '  ' if words else '')}"


def _lines(insertions: int, deletions: int, before: str) -> str:
    return f"{before}+{insertions} -{deletions}" if insertions or deletions else ""
