"""Rolls back an apply that failed or was interrupted by a crash.

A journal file is written before the first change to a tree, and removed after the last. A rollback
restores each path that is still as the merge wrote it. A path that was edited since is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.lowlevel.directory_lock import hold_directory
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.workspace import beneath
from infloop.workspace.durable_files import write_durably
from infloop.workspace.snapshots.restore import STAGING_NAME
from infloop.workspace.snapshots.restore_plan import merge_update, parent_paths
from infloop.workspace.snapshots.trees import Difference
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.workspace.snapshots.store import SnapshotStore


class PendingApply(NamedTuple):
    """An apply in progress: the tree, its snapshot before, and the merged tree."""

    root: str
    common: str
    ours: str
    merged: str

    @property
    def name(self) -> str:
        """The name of its journal file; there is one for each tree."""
        return "apply-" + hashlib.sha256(os.fsencode(self.root)).hexdigest()[:32]

    def exists(self) -> bool:
        """Tell whether the tree and its repository still exist."""
        return Path(self.root).is_dir() and Path(self.common).is_dir()

    def begin(self, store: SnapshotStore) -> None:
        """Write the journal file; it is on the disk when this returns."""
        store.pin(self.name, self.ours, self.merged)
        directory = store.directory / "pending"
        directory.mkdir(mode=0o700, exist_ok=True)
        write_durably(directory / self.name, json.dumps(self._asdict()))

    def end(self, store: SnapshotStore) -> None:
        """Remove the journal file."""
        (store.directory / "pending" / self.name).unlink(missing_ok=True)
        store.unpin(self.name)


async def recover(store: SnapshotStore) -> list[Path]:
    """Roll back the applies of processes that died; return the trees that were changed."""
    recovered: list[Path] = []
    for pending in _all(store):
        if not pending.exists():
            pending.end(store)
            continue
        async with hold_directory(Path(pending.common)):
            # Its own process may have finished in the meantime.
            if pending in _all(store):
                await _lock_and_roll_back(store, pending)
                recovered.append(Path(pending.root))
    return recovered


async def recover_repository(store: SnapshotStore, common: Path) -> None:
    """Roll back interrupted applies in one repository; the caller holds its lock."""
    for pending in _all(store):
        if pending.common == str(common) and pending.exists():
            await _lock_and_roll_back(store, pending)


async def roll_back(store: SnapshotStore, root: Path, pending: PendingApply) -> None:
    """Undo the paths that are as the merge wrote them; the caller holds the lock of the root."""
    await in_thread(lambda _: _remove_staging(root))
    ours = await store.stored_tree(pending.ours)
    scan = await store.read(root)
    others = {each.path for each in await store.trees.leaves(scan.stored.files, pending.merged)}
    applied = await store.trees.leaves(ours.files, pending.merged)
    back = [
        Difference(each.path, each.new, each.old) for each in applied if each.path not in others
    ]

    def mode(each: Difference) -> int | None:
        return ours.metadata.permissions(each.path, each.new.mode) if each.new else None

    await store.update_tree(root, merge_update(scan, back, mode))
    known = await store.trees.listing(ours.files)
    made = {parent for each in applied for parent in _parents(each.path) if parent not in known}
    await in_thread(lambda _: _remove_empty(root, made))
    pending.end(store)


async def _lock_and_roll_back(store: SnapshotStore, pending: PendingApply) -> None:
    async with store.lock_root(Path(pending.root)) as root:
        await roll_back(store, root, pending)


def _all(store: SnapshotStore) -> list[PendingApply]:
    found: list[PendingApply] = []
    for path in sorted((store.directory / "pending").glob("apply-*")):
        with suppress(OSError, ValueError, TypeError):
            found.append(PendingApply(**json.loads(path.read_text(encoding="ascii"))))
    return found


def _parents(path: bytes) -> list[bytes]:
    return [os.fsencode(parent) for parent in parent_paths(os.fsdecode(path))]


def _remove_empty(root: Path, folders: Collection[bytes]) -> None:
    """Remove those of the directories that are empty."""
    with beneath.open_root(root) as directory:
        for path in sorted(folders, reverse=True):
            with suppress(OSError), beneath.open_parent(directory, path) as (above, name):
                os.rmdir(name, dir_fd=above)


def _remove_staging(root: Path) -> None:
    """Remove the staging directories of processes that died."""
    with beneath.open_root(root) as directory:
        for entry in os.scandir(directory):
            name = os.fsencode(entry.name)
            if STAGING_NAME.fullmatch(name) and entry.is_dir(follow_symlinks=False):
                remove_tree_at(directory, name)
