"""The time machine: whole trees, kept in a private store.

A snapshot holds what `walk` reads and `notes` adds: the content of every file, tracked, untracked
or ignored, with all permission bits, links as links, directories, the empty ones too. It does not
hold owners, times, extended attributes, which names are one file, or anything named `.git`.
Its id is made of what it holds: the same tree has the same id.

Nothing outside the store is written but by `restore`, and that never touches a `.git`. Plain
directories and git work trees are the same here.

On disk: a bare repository (see `objects`) with one ref for each snapshot under `refs/snapshots` or,
taken for somebody, under `refs/owned`, and others under `refs/pinned` that `prune` leaves alone;
and `memory`, which is a cache. The store
is shared by processes: whoever adds holds it together with others, whoever removes holds it alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import InfloopError, NotFound, StepError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.workspace import beneath
from infloop.workspace.git.commands import Git, Place, is_id
from infloop.workspace.snapshots import metadata as notes
from infloop.workspace.snapshots.changes import Change, changes
from infloop.workspace.snapshots.index import Memory
from infloop.workspace.snapshots.objects import FILE, FOLDER, Objects, TreeEntry
from infloop.workspace.snapshots.refs import Refs
from infloop.workspace.snapshots.restore import open_stage, perform
from infloop.workspace.snapshots.restore_plan import Read, State, check_room, leading_to, left, work
from infloop.workspace.snapshots.trees import Trees
from infloop.workspace.snapshots.walk import Limits, Skipped, Walk
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from infloop.workspace.git.program import RunProgram
    from infloop.workspace.snapshots.restore import Work
    from infloop.workspace.snapshots.trees import Difference
    from infloop.workspace.threads import Stop

GRACE_S = 3600.0
"""How long a snapshot is kept whatever `prune` is told: its taker may not have written it down."""
_MANY_PACKS = 40
_REMEMBERED = 64


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A tree as it was.

    `tree` is the id of the files alone, the same as long as no content, type, name or execute bit
    changes. `head` is the commit that the tree's own git had checked out, if it has one.
    `repositories` are the `.git`s further down, which the snapshot does not hold.
    """

    id: str
    tree: str
    label: str
    taken_at_ms: int
    head: str | None
    files: int
    skipped: tuple[Skipped, ...]
    repositories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """A restore that is done: `before` undoes it, `left` could not be kept and so has stayed."""

    before: Snapshot
    changes: tuple[Change, ...]
    left: tuple[str, ...]


class SnapshotStore:
    """Snapshots in the directory given; `exclude` are directories that are never looked into."""

    def __init__(
        self,
        directory: Path,
        run: RunProgram,
        *,
        exclude: Sequence[Path] = (),
        limits: Limits | None = None,
        git: Git | None = None,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.directory = directory
        self.git = git or Git(run)
        self.objects = Objects(directory)
        self.trees = Trees(self.git, directory)
        self._exclude = (directory, *exclude)
        self._limits = limits or Limits()
        self.now_ms = now_ms
        self._refs = Refs(directory)
        self._memory = Memory(directory / "memory")
        self._turns: dict[str, asyncio.Lock] = {}
        self._states: dict[str, State] = {}

    async def take(
        self, root: Path, label: str = "", *, any_size: bool = False, ask_git: bool = True
    ) -> Snapshot:
        """Keep the tree at `root` as it is now; it is durable when this returns.

        A tree that is too large is refused (StepError) unless `any_size` says not to. Its own git
        is not asked for the commit if `ask_git` says so.
        """
        async with self.turn(root) as place:
            read = await self.read(place, any_size=any_size)
            head = await self._head(place) if ask_git else None
            taken = self._snapshot(read.state, label, head)
        await self._tidy()
        return taken

    async def glance(self, root: Path, owner: str) -> Read:
        """Keep the tree at `root` as long as its owner is kept; quick, for git is not asked."""
        async with self.turn(root) as place:
            read = await self.read(place, owner=owner, any_size=False)
        await self._tidy()
        return read

    async def diff(self, old: str, new: str) -> list[Change]:
        """Return what changed from one snapshot to another, by path."""
        before, after = await self.state(old), await self.state(new)
        found = await self.trees.differences(before.files, after.files)
        return await self._changes(before, after, found)

    async def patch(self, old: str, new: str, paths: Sequence[str] | None = None) -> str:
        """Return what changed as a unified diff, of some paths or of all."""
        before, after = await self.state(old), await self.state(new)
        return await self.trees.patch(before.files, after.files, paths or ())

    async def plan_restore(self, root: Path, snapshot: str) -> list[Change]:
        """Return what a restore would change now; raise StepError if it could not be done."""
        target = await self.state(snapshot)
        async with self.turn(root) as place:
            now = (await self.read(place, keep=False)).state
        found = await self.trees.differences(now.files, target.files)
        check_room(now, found)
        return await self._changes(now, target, found)

    async def restore(self, root: Path, snapshot: str) -> Restored:
        """Make the tree at `root` as it was, after keeping it as it is.

        Additions are removed, except what no snapshot can hold (`Restored.left`): a `.git`, a file
        over the size limit. If such a thing is where the snapshot has something else, or
        somebody else changes the tree meanwhile, StepError says so; a restore that failed or was
        interrupted can be done again.
        """
        target = await self.state(snapshot)
        async with self.turn(root) as place:
            read = await self.read(place)
            before = self._snapshot(read.state, "before restore", await self._head(place))
            found = await self.trees.differences(read.state.files, target.files)
            check_room(read.state, found)
            done = await self._changes(read.state, target, found)
            await self.make(place, work(read, target, found))
            stayed = left(read.state, target)
            await self._verify(place, target, stayed)
        return Restored(before, tuple(done), stayed)

    def pin(self, name: str, *ids: str) -> None:
        """Keep these objects until `unpin`, whatever is pruned; a name holds one set."""
        self._refs.pin(name, *ids)

    def unpin(self, name: str) -> None:
        """No longer keep what was pinned under a name."""
        self._refs.pin(name)

    def forget(self, root: Path) -> None:
        """Remember nothing of a root that is gone; its snapshots stay."""
        self._memory.forget(str(root))

    def share(self, owner: str, other: str) -> None:
        """Keep the snapshots of one owner for another one too."""
        self._refs.share(owner, other)

    def owners(self) -> list[str]:
        """Return for whom snapshots are kept."""
        return self._refs.owners()

    async def prune(self, keep: Collection[str], gone: Collection[str] = ()) -> int:
        """Drop all snapshots but those to keep, the pinned, the recent and the owned.

        Dropped, too, is what belongs to owners that are `gone`. What only the dropped ones held
        is removed from disk. Returns how many were dropped that nobody owned.
        """
        self.objects.prepare()
        async with hold_directory(self.directory):
            for owner in gone:
                self._refs.drop_owner(owner)
            dropped = self._refs.drop(set(keep), GRACE_S)
            for snapshot in dropped:
                self._states.pop(snapshot, None)
            await self.git.call(self.trees.place, "repack", "-a", "-d", "-q", "-l")
            await self.git.call(self.trees.place, "prune", "--expire=now")
            self.objects.sweep()
            self._memory.forget_missing()
        return len(dropped)

    async def read(
        self, root: Path, *, keep: bool = True, owner: str = "", any_size: bool = True
    ) -> Read:
        """Read the tree at `root` into the store; the caller has its turn at it."""
        self.objects.prepare()
        limits = self._limits.any_tree if any_size else self._limits

        def work(stop: Stop) -> Read:
            found = self._read(root, limits, stop)
            if keep:
                self._refs.keep(found.state.id, owner)
            return found

        async with hold_directory(self.directory, shared=True):
            found = await in_thread(work)
        self._remember(found.state)
        return found

    async def make(self, root: Path, todo: Work) -> None:
        """Do work on the tree at `root`; the caller has its turn at it."""
        with beneath.opened(root) as descriptor:
            stage = await in_thread(lambda _: open_stage(descriptor))
            try:
                contents = todo.contents()
                async for chunk in self.trees.blobs(contents):
                    await in_thread(partial(stage.put_all, todo, contents, chunk))
                await in_thread(lambda _: perform(descriptor, stage, todo))
            finally:
                await in_thread(lambda _: stage.close())

    @asynccontextmanager
    async def turn(self, root: Path) -> AsyncIterator[Path]:
        """Have a root to oneself within this process; give its one true path."""
        place = _true_path(root)
        async with self._turns.setdefault(str(place), asyncio.Lock()):
            yield place

    def _read(self, root: Path, limits: Limits, stop: Stop) -> Read:
        self.objects.refresh()
        with beneath.opened(root) as descriptor, self.objects.batch() as batch:
            walk = Walk(batch, limits, self._ours(), stop)
            folder = walk.root(descriptor, self._memory.recall(str(root)))
            noted = notes.note(folder, walk.seen)
            files = TreeEntry(b"files", FOLDER, folder.id)
            beside = TreeEntry(b"notes", FILE, batch.add("blob", noted.encoded()))
            whole = batch.tree((files, beside))
        self._memory.keep(str(root), folder)
        return Read(State(whole.hex(), folder.id.hex(), noted), folder)

    def _ours(self) -> frozenset[tuple[int, int]]:
        found = [path.stat() for path in self._exclude if path.exists()]
        return frozenset((status.st_dev, status.st_ino) for status in found)

    def _snapshot(self, state: State, label: str, head: str | None) -> Snapshot:
        noted = state.notes
        return Snapshot(
            state.id,
            state.files,
            label,
            self.now_ms(),
            head,
            noted.files,
            noted.skipped,
            noted.repositories,
        )

    async def _head(self, root: Path) -> str | None:
        """Return the commit checked out at `root`; None when git knows none or is not there."""
        try:
            place = Place(root)
            return await self.git.text(place, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except InfloopError:  # a note for people: the snapshot is good without it
            return None

    async def state(self, snapshot: str) -> State:
        """Return what a snapshot holds, as trees."""
        if not is_id(snapshot):
            raise NotFound(f"{snapshot!r} is not the id of a snapshot")
        if snapshot not in self._states:
            if not (self.directory / "HEAD").exists():
                raise NotFound(f"there is no snapshot {snapshot!r}: none was ever taken here")
            content = await self.trees.object(f"{snapshot}:notes")
            files = await self.git.text(self.trees.place, "rev-parse", f"{snapshot}:files")
            self._remember(State(snapshot, files, notes.decode(content)))
        return self._states[snapshot]

    def _remember(self, state: State) -> None:
        self._states[state.id] = state
        while len(self._states) > _REMEMBERED:
            del self._states[next(iter(self._states))]

    async def _changes(
        self, before: State, after: State, found: Sequence[Difference]
    ) -> list[Change]:
        lines = await self.trees.lines(before.files, after.files) if found else {}
        return changes(found, lines, await self._mode_changes(before, after, found))

    async def _mode_changes(
        self, old: State, new: State, found: Iterable[Difference]
    ) -> Iterable[bytes]:
        """Return the paths of which nothing but permissions changed."""
        before, after = old.notes, new.notes
        differing = {each.path for each in found}
        if before.umask == after.umask:
            # A path with notes in one of them only has what the umask gives in the other.
            paths = before.modes.keys() | after.modes.keys()
            kept = [path for path in paths if before.modes.get(path) != after.modes.get(path)]
            candidates = [os.fsencode(path) for path in kept]
        else:
            listing = await self.trees.listing(new.files)
            candidates = [
                path
                for path, entry in listing.items()
                if before.permissions(path, entry.mode) != after.permissions(path, entry.mode)
            ]
        return [path for path in candidates if path not in differing]

    async def _verify(self, root: Path, target: State, stayed: Sequence[str]) -> None:
        now = (await self.read(root, keep=False)).state
        if now.id == target.id:
            return
        around = {place for path in stayed for place in leading_to(path)}
        found = await self.diff(target.id, now.id)
        wrong = [each.shown for each in found if each.path.removesuffix("/") not in around]
        if wrong:
            raise StepError(
                f"the directory changed while it was restored ({', '.join(wrong[:5])}): "
                "stop what is working in it and restore again"
            )

    async def _tidy(self) -> None:
        """Have git make few packs of many, unless the store is in use; it can wait."""
        if self.objects.pack_count() <= _MANY_PACKS:
            return
        with suppress(InfloopError):
            async with hold_directory(self.directory, timeout_s=0):
                await self.git.call(self.trees.place, "repack", "--geometric=2", "-d", "-q", "-l")


def _true_path(root: Path) -> Path:
    try:
        return root.resolve(strict=True)
    except OSError as error:
        raise StepError(f"{str(root)!r} cannot be opened: {error.strerror}") from None
