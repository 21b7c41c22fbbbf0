"""What changed between two states of a tree, path by path, for people and for programs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.workspace.snapshots.trees import Lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from infloop.workspace.snapshots.trees import Difference

Kind: TypeAlias = Literal["added", "modified", "deleted", "mode", "type"]

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_NO_LINES = Lines(0, 0, binary=False)


@dataclass(frozen=True, slots=True)
class Change:
    """A path that changed.

    `path` is as `os.fsdecode` gives it, so it can be opened; one that ends with a slash is an
    empty directory. `mode` means nothing but permissions changed, `type` that a file became a
    link or a link a file.
    """

    path: str
    kind: Kind
    insertions: int = 0
    deletions: int = 0
    binary: bool = False

    @property
    def shown(self) -> str:
        """The path, safe to print and to store: one line, without control characters."""
        return printable(self.path)


def printable(path: str) -> str:
    """Return a path with everything escaped that a terminal or an encoder would trip over."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def changes(
    differences: Iterable[Difference], lines: Mapping[bytes, Lines], modes: Iterable[bytes]
) -> list[Change]:
    """Put together what is known of each path; `modes` are those whose permissions differ."""
    found: dict[str, Change] = {}
    for difference in differences:
        change = _change(difference, lines.get(difference.path, _NO_LINES))
        if change:
            found[change.path] = change
    for path in modes:
        name = os.fsdecode(path) or "."
        found.setdefault(name, Change(name, "mode"))
    return sorted(found.values(), key=lambda change: change.path)


def _change(difference: Difference, lines: Lines) -> Change | None:
    old, new = difference.old, difference.new
    path = os.fsdecode(difference.path)
    either = new or old
    if either and either.is_folder:
        # One that is not empty is known by what is in it.
        kind: Kind = "added" if new else "deleted"
        return Change(f"{path}/", kind) if either.id == EMPTY_TREE else None
    if old is None or new is None:
        kind = "deleted" if new is None else "added"
    elif old.mode[:2] != new.mode[:2]:
        kind = "type"
    else:
        kind = "mode" if old.id == new.id else "modified"
    return Change(path, kind, *lines)
