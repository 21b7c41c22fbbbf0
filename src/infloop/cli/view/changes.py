"""Changes to files, as lines to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.view.terminal import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.application.runs.models import FileChange

_WORDS = {"added": "added", "deleted": "deleted", "mode": "permissions", "type": "another type"}


def change_lines(changes: Sequence[FileChange], limit: int | None = None) -> list[str]:
    """Return a line for each of the first `limit` files, and how many more there are."""
    listed = changes[:limit]
    width = max((len(change.path) for change in listed), default=0)
    lines = [f"  {change.path:<{width}}  {_kind(change)}".rstrip() for change in listed]
    more = len(changes) - len(listed)
    return [*lines, f"  … and {more} more"] if more else lines


def left_out_lines(left_out: Mapping[str, str], limit: int) -> list[str]:
    """Return lines about changed files that are not part of the result, and how to get them."""
    if not left_out:
        return []
    few = list(left_out.items())[:limit]
    lines = [f"  {path}  ({why})" for path, why in few]
    if len(left_out) > len(few):
        lines.append(f"  … and {len(left_out) - len(few)} more")
    return ["left out (--all or --include NAME takes them):", *lines]


def secret_lines(secrets: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each file to which a secret was added."""
    return [f"{path} holds a secret: {', '.join(names)}" for path, names in secrets.items()]


def total(changes: Sequence[FileChange]) -> str:
    """Return the sum of all changes: `3 files changed, +10 -2`."""
    insertions = sum(change.insertions for change in changes)
    deletions = sum(change.deletions for change in changes)
    return changed(len(changes), insertions, deletions)


def changed(files: int, insertions: int, deletions: int) -> str:
    """Return how much changed: `1 file changed, +10 -2`."""
    return f"{plural(files, 'file')} changed{_lines(insertions, deletions, ', ')}"


def _kind(change: FileChange) -> str:
    words = _WORDS.get(change.kind, "")
    if change.binary:
        return f"{words}  binary".lstrip()
    return f"{words}{_lines(change.insertions, change.deletions, '  ' if words else '')}"


def _lines(insertions: int, deletions: int, before: str) -> str:
    return f"{before}+{insertions} -{deletions}" if insertions or deletions else ""
