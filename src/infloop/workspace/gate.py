"""Which changes a person has to allow before they come home: those of protected paths."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infloop.policy.protected import SCRIPTS, changes_scripts, is_package, protected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.workspace.trees import Difference, Entry, Trees


async def protected_changes(trees: Trees, differences: Iterable[Difference]) -> dict[str, str]:
    """Return the protected paths among those that differ, each with the reason."""
    found: dict[str, str] = {}
    for each in differences:
        path = os.fsdecode(each.path)
        why = protected(path)
        if not why and is_package(path):
            old, new = [await _content(trees, entry) for entry in (each.old, each.new)]
            why = SCRIPTS if changes_scripts(old, new) else ""
        if why:
            found[path] = why
    return found


async def _content(trees: Trees, entry: Entry | None) -> bytes | None:
    return await trees.object(entry.id) if entry else None
