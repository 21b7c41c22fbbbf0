"""Taking back what was being applied to a tree when something went wrong, a crash included.

A note is written before the first change to a tree, and removed after the last. With it, what is
half done is undone path by path: what is as the merge made it becomes what it was; what somebody
edited since is theirs and stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.lowlevel.directory_lock import hold_directory
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.workspace import beneath
from infloop.workspace.snapshots.restore import STAGE
from infloop.workspace.snapshots.restore_plan import leading_to, merged_work
from infloop.workspace.snapshots.trees import Difference
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.workspace.snapshots.store import SnapshotStore


class Pending(NamedTuple):
    """A tree that is being changed: from which snapshot, to which tree."""

    root: str
    common: str
    ours: str
    merged: str

    @property
    def name(self) -> str:
        """What its note is called: there is one for a tree."""
        return "apply-" + hashlib.sha256(os.fsencode(self.root)).hexdigest()[:32]

    def is_there(self) -> bool:
        """Say whether there still is such a tree, and a repository of it."""
        return Path(self.root).is_dir() and Path(self.common).is_dir()

    def begin(self, store: SnapshotStore) -> None:
        """Write the note."""
        store.pin(self.name, self.ours, self.merged)
        directory = store.directory / "pending"
        directory.mkdir(mode=0o700, exist_ok=True)
        unseen = directory / f".{secrets.token_hex(8)}"
        with unseen.open("x", encoding="ascii") as file:
            json.dump(self._asdict(), file)
            file.flush()
            os.fsync(file.fileno())
        unseen.replace(directory / self.name)

    def end(self, store: SnapshotStore) -> None:
        """Remove the note."""
        (store.directory / "pending" / self.name).unlink(missing_ok=True)
        store.unpin(self.name)


async def recover(store: SnapshotStore) -> list[Path]:
    """Take back what was being applied when a process died; return the trees it was done in."""
    recovered: list[Path] = []
    for pending in _all(store):
        if not pending.is_there():
            pending.end(store)
            continue
        async with hold_directory(Path(pending.common)):
            # Its own process may have finished in the meantime.
            if pending in _all(store):
                await _take_back_alone(store, pending)
                recovered.append(Path(pending.root))
    return recovered


async def recover_in(store: SnapshotStore, common: Path) -> None:
    """Take back what was left half done in one repository; the caller has its turn there."""
    for pending in _all(store):
        if pending.common == str(common) and pending.is_there():
            await _take_back_alone(store, pending)


async def take_back(store: SnapshotStore, root: Path, pending: Pending) -> None:
    """Undo what is as the merge made it; the caller has its turn at the root."""
    await in_thread(lambda _: _remove_stages(root))
    ours = await store.state(pending.ours)
    read = await store.read(root)
    others = {each.path for each in await store.trees.leaves(read.state.files, pending.merged)}
    applied = await store.trees.leaves(ours.files, pending.merged)
    back = [
        Difference(each.path, each.new, each.old) for each in applied if each.path not in others
    ]

    def mode(each: Difference) -> int | None:
        return ours.notes.permissions(each.path, each.new.mode) if each.new else None

    await store.make(root, merged_work(read, back, mode))
    known = await store.trees.listing(ours.files)
    made = {place for each in applied for place in _above(each.path) if place not in known}
    await in_thread(lambda _: _remove_hollow(root, made))
    pending.end(store)


async def _take_back_alone(store: SnapshotStore, pending: Pending) -> None:
    async with store.turn(Path(pending.root)) as root:
        await take_back(store, root, pending)


def _all(store: SnapshotStore) -> list[Pending]:
    found: list[Pending] = []
    for path in sorted((store.directory / "pending").glob("apply-*")):
        with suppress(OSError, ValueError, TypeError):
            found.append(Pending(**json.loads(path.read_text(encoding="ascii"))))
    return found


def _above(path: bytes) -> list[bytes]:
    return [os.fsencode(place) for place in leading_to(os.fsdecode(path))]


def _remove_hollow(root: Path, folders: Collection[bytes]) -> None:
    """Remove those of the directories in which there is nothing."""
    with beneath.opened(root) as directory:
        for path in sorted(folders, reverse=True):
            with suppress(OSError), beneath.parent(directory, path) as (above, name):
                os.rmdir(name, dir_fd=above)


def _remove_stages(root: Path) -> None:
    """Remove staging directories that a process which died has left."""
    with beneath.opened(root) as directory:
        for entry in os.scandir(directory):
            name = os.fsencode(entry.name)
            if STAGE.fullmatch(name) and entry.is_dir(follow_symlinks=False):
                remove_tree_at(directory, name)
