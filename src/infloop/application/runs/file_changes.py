"""Changed files as every surface shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.runs.models import DirectoryChanges, DirectoryDiff, FileChange
from infloop.workspace.applying.review import protected_changes
from infloop.workspace.snapshots.changes import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.runtime.timeline import SnapshotPair
    from infloop.workspace.snapshots.changes import Change
    from infloop.workspace.snapshots.store import SnapshotStore


async def directory_diff(store: SnapshotStore, span: SnapshotPair) -> DirectoryDiff:
    """Return what changed between two snapshots of a directory, as a patch."""
    return DirectoryDiff(
        directory=span.directory,
        patch=await store.patch(span.before, span.after),
        changed=span.before != span.after,
        protected=await _protected(store, span),
    )


async def directory_changes(store: SnapshotStore, span: SnapshotPair) -> DirectoryChanges:
    """Return which files changed between two snapshots of a directory."""
    return DirectoryChanges(
        directory=span.directory,
        files=file_changes(await store.diff(span.before, span.after)),
        changed=span.before != span.after,
        protected=await _protected(store, span),
    )


async def _protected(store: SnapshotStore, span: SnapshotPair) -> dict[str, str]:
    before, after = await store.stored_tree(span.before), await store.stored_tree(span.after)
    changed = await store.trees.leaves(before.files, after.files)
    return printable_paths(await protected_changes(store.trees, before.files, changed))


def printable_paths(reasons: dict[str, str]) -> dict[str, str]:
    """Return the paths without control characters, each with its reason."""
    return {printable(path): why for path, why in reasons.items()}


def file_changes(changes: Iterable[Change]) -> list[FileChange]:
    return [
        FileChange(
            path=change.printable_path,
            kind=change.kind,
            insertions=change.insertions,
            deletions=change.deletions,
            binary=change.binary,
        )
        for change in changes
    ]
