"""Describes what changed between two trees, path by path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.workspace.snapshots.trees import LineCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from infloop.workspace.snapshots.trees import Difference

ChangeKind: TypeAlias = Literal["added", "modified", "deleted", "mode", "type"]

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_NO_COUNTS = LineCounts(0, 0, binary=False)


class Change(msgspec.Struct, frozen=True):
    """A path that changed.

    - `path` is decoded with `os.fsdecode`, so it can be opened. A trailing slash marks an empty
      directory.
    - `kind` is `mode` if only permissions changed, and `type` if a file became a link or a link a
      file.
    """

    path: str
    kind: ChangeKind
    insertions: int = 0
    deletions: int = 0
    binary: bool = False

    @property
    def printable_path(self) -> str:
        """The path on one line without control characters, safe to print and to store."""
        return printable(self.path)


def printable(path: str) -> str:
    """Return a path with unprintable and undecodable characters escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def changes(
    differences: Iterable[Difference], lines: Mapping[bytes, LineCounts], modes: Iterable[bytes]
) -> list[Change]:
    """Return one `Change` for each path; `modes` are paths whose permissions differ."""
    found: dict[str, Change] = {}
    for difference in differences:
        change = _change(difference, lines.get(difference.path, _NO_COUNTS))
        if change:
            found[change.path] = change
    for path in modes:
        name = os.fsdecode(path) or "."
        found.setdefault(name, Change(name, "mode"))
    return sorted(found.values(), key=lambda change: change.path)


def _change(difference: Difference, lines: LineCounts) -> Change | None:
    old, new = difference.old, difference.new
    path = os.fsdecode(difference.path)
    either = new or old
    if either and either.is_folder:
        # A directory that is not empty is reported by its entries.
        kind: ChangeKind = "added" if new else "deleted"
        return Change(f"{path}/", kind) if either.id == EMPTY_TREE else None
    if old is None or new is None:
        kind = "deleted" if new is None else "added"
    elif old.mode[:2] != new.mode[:2]:
        kind = "type"
    else:
        kind = "mode" if old.id == new.id else "modified"
    return Change(path, kind, *lines)
