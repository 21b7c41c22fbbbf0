"""Finds the changes that a person must allow: protected paths, and links out of the tree."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infloop.policy.links import links_out_of_tree
from infloop.policy.protected_paths import (
    SCRIPTS,
    changes_scripts,
    is_package_manifest,
    protection_reason,
    tool_reason,
)
from infloop.workspace.snapshots.objects import LINK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.workspace.snapshots.trees import Difference, PathEntry, TreeReader


async def protected_changes(
    trees: TreeReader,
    base: str,
    differences: Sequence[Difference],
    named: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the paths of a change that a person must allow, each with the reason.

    `named` are the paths that the user's git settings name, each with the reason.
    """
    found: dict[str, str] = {}
    for each in differences:
        path = os.fsdecode(each.path)
        why = protection_reason(path, named) or (tool_reason(path) if each.new else "")
        if not why and is_package_manifest(path):
            old, new = [await _content(trees, entry) for entry in (each.old, each.new)]
            why = SCRIPTS if changes_scripts(old, new) else ""
        if why:
            found[path] = why
    return dict(sorted({**await _outgoing_links(trees, base, differences), **found}.items()))


async def _content(trees: TreeReader, entry: PathEntry | None) -> bytes | None:
    return await trees.object(entry.id) if entry else None


async def _outgoing_links(
    trees: TreeReader, base: str, differences: Sequence[Difference]
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
    targets = await _link_targets(trees, {*before.values(), *after.values()})
    return links_out_of_tree(_with_targets(before, targets), _with_targets(after, targets))


def _is_link(entry: PathEntry | None) -> bool:
    return entry is not None and entry.mode == LINK


async def _link_targets(trees: TreeReader, ids: set[str]) -> dict[str, str]:
    """Return the targets of links by the ids of their blobs."""
    return {
        name: os.fsdecode(content)
        async for some in trees.blobs(sorted(ids))
        for name, content in some
    }


def _with_targets(links: Mapping[bytes, str], targets: Mapping[str, str]) -> dict[str, str]:
    return {os.fsdecode(path): targets[name] for path, name in links.items()}
