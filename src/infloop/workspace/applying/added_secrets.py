"""Finds the changed files to which a change adds a secret, whether they are text or not.

A secret in the name of a new file counts too. A secret that a changed file held before is not
added: its line was edited or moved, or its file was renamed.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from functools import partial
from typing import TYPE_CHECKING

from infloop.workspace.snapshots.objects import EXECUTABLE, FILE, LINK
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from infloop.policy.leaks.guard import LeakGuard
    from infloop.workspace.snapshots.trees import Difference, PathEntry, TreeReader
    from infloop.workspace.threads import Stop

_CONTENTS = (FILE, EXECUTABLE, LINK)


async def added_secrets(
    trees: TreeReader, differences: Sequence[Difference], guard: LeakGuard
) -> dict[str, list[str]]:
    """Return the paths to which a secret was added, each with the names of the detectors."""
    if not guard:
        return {}
    new = await _secrets_in(trees, (each.new for each in differences), guard)
    in_paths = await in_thread(partial(_find_in_paths, guard, differences))
    if not new and not in_paths:
        return {}
    old = await _secrets_in(trees, (each.old for each in differences), guard)
    held = [*old.values(), *(in_paths.get(each.path, {}) for each in differences if each.old)]
    before = {value for values in held for value in values}
    found = {}
    for each in differences:
        if each.new:
            values = [*new.get(each.new.id, {}).items(), *in_paths.get(each.path, {}).items()]
            added = {name for value, names in values if value not in before for name in names}
            if added:
                found[os.fsdecode(each.path)] = sorted(added)
    return dict(sorted(found.items()))


async def _secrets_in(
    trees: TreeReader, entries: Iterable[PathEntry | None], guard: LeakGuard
) -> dict[str, dict[bytes, set[str]]]:
    """Return the secrets in files by the ids of their blobs, with the names of their detectors."""
    ids = {entry.id for entry in entries if entry and entry.mode in _CONTENTS}
    found = {}
    async for some in trees.blobs(sorted(ids)):
        for name, content in some:
            # A child decides how long this takes.
            if secrets := await in_thread(partial(_find_in_file, guard, content)):
                found[name] = secrets
    return found


def _find_in_paths(
    guard: LeakGuard, differences: Sequence[Difference], _: Stop
) -> dict[bytes, dict[bytes, set[str]]]:
    found = {each.path: _find(guard, each.path) for each in differences}
    return {path: secrets for path, secrets in found.items() if secrets}


def _find_in_file(guard: LeakGuard, content: bytes, _: Stop) -> dict[bytes, set[str]]:
    return _find(guard, *_texts(content))


def _find(guard: LeakGuard, *texts: bytes) -> dict[bytes, set[str]]:
    found: dict[bytes, set[str]] = {}
    for text in texts:
        for leak in guard.finder.find(text):
            found.setdefault(text[leak.start : leak.end], set()).add(leak.detector)
    return found


def _texts(content: bytes) -> Iterator[bytes]:
    """Yield what a file holds, as it is and decoded if it says that it is UTF-16."""
    yield content
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        yield content.decode("utf-16", "replace").encode()
