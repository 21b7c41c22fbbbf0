"""Takes, compares and restores snapshots of whole directory trees.

A snapshot holds

- the content of every file, whether git tracks, ignores or does not know it,
- all permission bits, symbolic links, and directories, including empty ones.

It does not hold owners, times, extended attributes, hard links, or anything named `.git`. The id
of a snapshot is a hash of its content: equal trees have equal ids.

Only `restore` and `update_tree` write outside the store, and never to a `.git`. Plain directories
and git work trees are treated alike.

On disk, the store is a bare repository (see `objects`) with refs:

- `refs/snapshots`: snapshots without an owner
- `refs/owned/<owner>`: snapshots of an owner
- `refs/pinned/<name>`: objects that `prune` keeps

The directory `memory` is a cache. Processes share the store: adding takes a shared lock, removing
an exclusive one.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import InfloopError, NotFound, StepError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.workspace import beneath
from infloop.workspace.git.commands import Git, GitContext, is_id
from infloop.workspace.snapshots import metadata
from infloop.workspace.snapshots.changes import Change, changes
from infloop.workspace.snapshots.objects import FILE, FOLDER, Objects, TreeEntry
from infloop.workspace.snapshots.refs import Refs
from infloop.workspace.snapshots.restore import open_staging, perform_update
from infloop.workspace.snapshots.restore_plan import (
    ScannedTree,
    StoredTree,
    check_blockers,
    parent_paths,
    restore_update,
    unremoved_paths,
)
from infloop.workspace.snapshots.stat_cache import StatCache
from infloop.workspace.snapshots.trees import TreeReader
from infloop.workspace.snapshots.walk import Skipped, TreeLimits, Walk
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from infloop.workspace.git.index_file import IndexedFile
    from infloop.workspace.git.program import RunProgram
    from infloop.workspace.snapshots.restore import TreeUpdate
    from infloop.workspace.snapshots.trees import Difference
    from infloop.workspace.threads import Stop

GRACE_S = 3600.0
"""`prune` keeps younger snapshots: the process that took one may not have recorded its id yet."""
_MAX_PACKS = 40
NOTHING_WRITTEN: Mapping[bytes, IndexedFile] = {}
_MAX_CACHED_TREES = 64


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Snapshot(msgspec.Struct, frozen=True):
    """A stored tree.

    - `tree` is the id of the files alone. It depends on names, content, file types and execute
      bits.
    - `head` is the commit that was checked out, if the directory is a git work tree.
    - `repositories` are nested `.git` directories, which the snapshot does not hold.
    """

    id: str
    tree: str
    label: str
    taken_at_ms: int
    head: str | None
    files: int
    skipped: tuple[Skipped, ...]
    repositories: tuple[str, ...]


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore.

    `before` is a snapshot that undoes it. `left` are paths that were not removed, because no
    snapshot can hold them.
    """

    before: Snapshot
    changes: tuple[Change, ...]
    left: tuple[str, ...]


class SnapshotStore:
    """The snapshots in `directory`; the directories `exclude` are never read."""

    def __init__(
        self,
        directory: Path,
        run: RunProgram,
        *,
        exclude: Sequence[Path] = (),
        limits: TreeLimits | None = None,
        git: Git | None = None,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.directory = directory
        self.git = git or Git(run)
        self.objects = Objects(directory)
        self.trees = TreeReader(self.git, directory)
        self._exclude = (directory, *exclude)
        self._limits = limits or TreeLimits()
        self.now_ms = now_ms
        self._refs = Refs(directory)
        self._stat_cache = StatCache(directory / "memory")
        self._locks: dict[str, asyncio.Lock] = {}
        self._stored_trees: dict[str, StoredTree] = {}

    async def take(
        self,
        root: Path,
        label: str = "",
        *,
        any_size: bool = False,
        ask_git: bool = True,
        written: Mapping[bytes, IndexedFile] = NOTHING_WRITTEN,
    ) -> Snapshot:
        """Take a snapshot of the tree at `root`; it is durable when this returns.

        Raises StepError for a tree over the size limit, unless `any_size` is true. With `ask_git`
        false, the checked-out commit is not looked up. `written` are files that our git has just
        written, and that nobody else can have changed.
        """
        async with self.lock_root(root) as true_root:
            scan = await self.read(true_root, any_size=any_size, written=written)
            head = await self._head(true_root) if ask_git else None
            taken = self._snapshot(scan.stored, label, head)
        await self._repack_if_needed()
        return taken

    async def take_for_owner(self, root: Path, owner: str) -> ScannedTree:
        """Take a snapshot that lives as long as its owner; git is not run, so this is quick."""
        async with self.lock_root(root) as true_root:
            scan = await self.read(true_root, owner=owner, any_size=False)
        await self._repack_if_needed()
        return scan

    async def diff(self, old: str, new: str) -> list[Change]:
        """Return the changes from one snapshot to another."""
        before, after = await self.stored_tree(old), await self.stored_tree(new)
        found = await self.trees.differences(before.files, after.files)
        return await self._changes(before, after, found)

    async def patch(self, old: str, new: str, paths: Sequence[str] | None = None) -> str:
        """Return the changes as a unified diff, for all paths or the given ones."""
        before, after = await self.stored_tree(old), await self.stored_tree(new)
        return await self.trees.patch(before.files, after.files, paths or ())

    async def plan_restore(self, root: Path, snapshot: str) -> list[Change]:
        """Return what a restore would change now; raise StepError if it is not possible."""
        target = await self.stored_tree(snapshot)
        async with self.lock_root(root) as true_root:
            now = (await self.read(true_root, keep=False)).stored
        found = await self.trees.differences(now.files, target.files)
        check_blockers(now, found)
        return await self._changes(now, target, found)

    async def restore(self, root: Path, snapshot: str) -> Restored:
        """Restore the tree at `root`, after taking a snapshot of its present state.

        New files are removed, except those that no snapshot can hold (`Restored.left`), such as a
        `.git` or a file over the size limit. Raises StepError if one of those blocks the restore,
        or if the tree changes during it. A failed or interrupted restore can be repeated.
        """
        target = await self.stored_tree(snapshot)
        async with self.lock_root(root) as true_root:
            scan = await self.read(true_root)
            before = self._snapshot(scan.stored, "before restore", await self._head(true_root))
            found = await self.trees.differences(scan.stored.files, target.files)
            check_blockers(scan.stored, found)
            done = await self._changes(scan.stored, target, found)
            await self.update_tree(true_root, restore_update(scan, target, found))
            stayed = unremoved_paths(scan.stored, target)
            await self._verify(true_root, target, stayed)
        return Restored(before, tuple(done), stayed)

    async def import_tree(self, tree: str, objects: Sequence[Path]) -> None:
        """Copy a tree and all below it from other object directories, as they are packed there."""
        self.objects.prepare()
        context = self.trees.with_objects(objects).context
        # Deltas that exist are copied; none are searched for.
        how = ("pack-objects", "--revs", "-q", "--window=0", str(self.objects.packs / "pack"))
        async with hold_directory(self.directory, shared=True):
            await self.git.call(context, *how, stdin=f"{tree}\n".encode())
            await in_thread(lambda _: self.objects.protect_packs())

    def pin(self, name: str, *ids: str) -> None:
        """Keep these objects until `unpin`, even in `prune`; they replace the set of that name."""
        self._refs.pin(name, *ids)

    def unpin(self, name: str) -> None:
        """Stop keeping the objects of a pin."""
        self._refs.pin(name)

    def drop_cache(self, root: Path) -> None:
        """Drop the cached scan of a root that was removed; its snapshots stay."""
        self._stat_cache.drop(str(root))

    def share(self, owner: str, other: str) -> None:
        """Keep the snapshots of one owner for another owner too."""
        self._refs.share(owner, other)

    def keep_for_owner(self, snapshots: Iterable[str], owner: str) -> None:
        """Keep snapshots that are in the store for an owner; the caller holds the store's lock."""
        for each in snapshots:
            self._refs.keep(each, owner)

    def owners(self) -> list[str]:
        """Return the owners that have snapshots."""
        return self._refs.owners()

    async def prune(self, keep: Collection[str], gone: Collection[str] = ()) -> int:
        """Drop all snapshots except those in `keep`, pinned, recent or owned ones.

        The snapshots of the owners in `gone` are dropped too. Objects that nothing refers to any
        more are removed from disk. Returns the number of dropped snapshots that had no owner.
        """
        self.objects.prepare()
        async with hold_directory(self.directory):
            for owner in gone:
                self._refs.drop_owner(owner)
            dropped = self._refs.drop(set(keep), GRACE_S)
            for snapshot in dropped:
                self._stored_trees.pop(snapshot, None)
            await self.git.call(self.trees.context, "repack", "-a", "-d", "-q", "-l")
            await self.git.call(self.trees.context, "prune", "--expire=now")
            self.objects.remove_temporary_files()
            self._stat_cache.drop_missing()
        return len(dropped)

    async def read(
        self,
        root: Path,
        *,
        keep: bool = True,
        owner: str = "",
        any_size: bool = True,
        written: Mapping[bytes, IndexedFile] = NOTHING_WRITTEN,
    ) -> ScannedTree:
        """Scan the tree at `root` into the store; the caller holds `lock_root`."""
        self.objects.prepare()
        limits = self._limits.without_tree_limit if any_size else self._limits

        def work(stop: Stop) -> ScannedTree:
            found = self._read(root, limits, stop, written)
            if keep:
                self._refs.keep(found.stored.id, owner)
            return found

        async with hold_directory(self.directory, shared=True):
            found = await in_thread(work)
        self._cache(found.stored)
        return found

    async def update_tree(self, root: Path, todo: TreeUpdate) -> None:
        """Make changes to the tree at `root`; the caller holds `lock_root`."""
        with beneath.open_root(root) as descriptor:
            stage = await in_thread(lambda _: open_staging(descriptor))
            try:
                contents = todo.contents()
                async for chunk in self.trees.blobs(contents):
                    await in_thread(partial(stage.put_all, todo, contents, chunk))
                await in_thread(lambda _: perform_update(descriptor, stage, todo))
            finally:
                await in_thread(lambda _: stage.close())

    @asynccontextmanager
    async def lock_root(self, root: Path) -> AsyncIterator[Path]:
        """Lock a root within this process; yield its resolved path."""
        path = _true_path(root)
        async with self._locks.setdefault(str(path), asyncio.Lock()):
            yield path

    def _read(
        self, root: Path, limits: TreeLimits, stop: Stop, written: Mapping[bytes, IndexedFile]
    ) -> ScannedTree:
        self.objects.refresh()
        with beneath.open_root(root) as descriptor, self.objects.batch() as batch:
            walk = Walk(batch, limits, self._excluded_ids(), stop, written)
            folder = walk.root(descriptor, self._stat_cache.get(str(root)))
            collected = metadata.collect(folder, walk.report)
            files = TreeEntry(b"files", FOLDER, folder.id)
            notes = TreeEntry(b"notes", FILE, batch.add("blob", collected.encode()))
            whole = batch.tree((files, notes))
        self._stat_cache.put(str(root), folder)
        return ScannedTree(StoredTree(whole.hex(), folder.id.hex(), collected), folder)

    def _excluded_ids(self) -> frozenset[tuple[int, int]]:
        found = [path.stat() for path in self._exclude if path.exists()]
        return frozenset((status.st_dev, status.st_ino) for status in found)

    def _snapshot(self, stored: StoredTree, label: str, head: str | None) -> Snapshot:
        return Snapshot(
            id=stored.id,
            tree=stored.files,
            label=label,
            taken_at_ms=self.now_ms(),
            head=head,
            files=stored.metadata.files,
            skipped=stored.metadata.skipped,
            repositories=stored.metadata.repositories,
        )

    async def _head(self, root: Path) -> str | None:
        """Return the commit checked out at `root`; None without a commit or without git."""
        try:
            context = GitContext(root)
            return await self.git.text(context, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except InfloopError:  # information for people only: the snapshot is complete without it
            return None

    async def stored_tree(self, snapshot: str) -> StoredTree:
        """Return the tree of a snapshot; raise NotFound if it does not exist."""
        if not is_id(snapshot):
            raise NotFound(f"{snapshot!r} is not a snapshot id: it has 40 hexadecimal digits")
        if snapshot not in self._stored_trees:
            if not (self.directory / "HEAD").exists():
                raise NotFound(f"there is no snapshot {snapshot!r}: the store is empty")
            content = await self.trees.object(f"{snapshot}:notes")
            files = await self.git.text(self.trees.context, "rev-parse", f"{snapshot}:files")
            self._cache(StoredTree(snapshot, files, metadata.decode(content)))
        return self._stored_trees[snapshot]

    def _cache(self, stored: StoredTree) -> None:
        self._stored_trees[stored.id] = stored
        while len(self._stored_trees) > _MAX_CACHED_TREES:
            del self._stored_trees[next(iter(self._stored_trees))]

    async def _changes(
        self, before: StoredTree, after: StoredTree, found: Sequence[Difference]
    ) -> list[Change]:
        lines = await self.trees.lines(before.files, after.files) if found else {}
        return changes(found, lines, await self._mode_changes(before, after, found))

    async def _mode_changes(
        self, old: StoredTree, new: StoredTree, found: Iterable[Difference]
    ) -> Iterable[bytes]:
        """Return the paths of which only permissions changed."""
        before, after = old.metadata, new.metadata
        differing = {each.path for each in found}
        if before.umask == after.umask:
            # A path listed in only one of them has the permissions of the umask in the other.
            paths = before.modes.keys() | after.modes.keys()
            changed = [path for path in paths if before.modes.get(path) != after.modes.get(path)]
            candidates = [os.fsencode(path) for path in changed]
        else:
            listing = await self.trees.listing(new.files)
            candidates = [
                path
                for path, entry in listing.items()
                if before.permissions(path, entry.mode) != after.permissions(path, entry.mode)
            ]
        return [path for path in candidates if path not in differing]

    async def _verify(self, root: Path, target: StoredTree, stayed: Sequence[str]) -> None:
        now = (await self.read(root, keep=False)).stored
        if now.id == target.id:
            return
        around = {parent for path in stayed for parent in parent_paths(path)}
        found = await self.diff(target.id, now.id)
        wrong = [each.printable_path for each in found if each.path.removesuffix("/") not in around]
        if wrong:
            raise StepError(
                f"the directory changed during the restore ({', '.join(wrong[:5])}): "
                "stop the programs that write to it and restore again"
            )

    async def _repack_if_needed(self) -> None:
        """Let git merge packs if there are many; skip it while the store is in use."""
        if self.objects.pack_count() <= _MAX_PACKS:
            return
        with suppress(InfloopError):
            async with hold_directory(self.directory, timeout_s=0):
                await self.git.call(self.trees.context, "repack", "--geometric=2", "-d", "-q", "-l")


def _true_path(root: Path) -> Path:
    try:
        return root.resolve(strict=True)
    except OSError as error:
        raise StepError(f"{str(root)!r} cannot be opened: {error.strerror}") from None
