"""Which changes a person has to allow before they come home: protected paths, and stray links."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infloop.policy.links import astray
from infloop.policy.protected_paths import SCRIPTS, changes_scripts, is_package, protected
from infloop.workspace.snapshots.objects import LINK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.workspace.snapshots.trees import Difference, Entry, Trees


async def protected_changes(
    trees: Trees, base: str, differences: Sequence[Difference]
) -> dict[str, str]:
    """Return the paths that a person has to allow when a tree changes so, each with the reason."""
    found: dict[str, str] = {}
    for each in differences:
        path = os.fsdecode(each.path)
        why = protected(path)
        if not why and is_package(path):
            old, new = [await _content(trees, entry) for entry in (each.old, each.new)]
            why = SCRIPTS if changes_scripts(old, new) else ""
        if why:
            found[path] = why
    return dict(sorted({**await _stray_links(trees, base, differences), **found}.items()))


async def _content(trees: Trees, entry: Entry | None) -> bytes | None:
    return await trees.object(entry.id) if entry else None


async def _stray_links(
    trees: Trees, base: str, differences: Sequence[Difference]
) -> dict[str, str]:
    if not any(_is_link(each.old) or _is_link(each.new) for each in differences):
        return {}
    before = {
        path: entry.id for path, entry in (await trees.listing(base)).items() if _is_link(entry)
    }
    after = dict(before)
    for each in differences:
        after.pop(each.path, None)
        if each.new and _is_link(each.new):
            after[each.path] = each.new.id
    words = await _words(trees, {*before.values(), *after.values()})
    return astray(_told(before, words), _told(after, words))


def _is_link(entry: Entry | None) -> bool:
    return entry is not None and entry.mode == LINK


async def _words(trees: Trees, ids: set[str]) -> dict[str, str]:
    """Return what links say, by the ids of their blobs."""
    return {
        name: os.fsdecode(content)
        async for some in trees.blobs(sorted(ids))
        for name, content in some
    }


def _told(links: Mapping[bytes, str], words: Mapping[str, str]) -> dict[str, str]:
    return {os.fsdecode(path): words[name] for path, name in links.items()}
