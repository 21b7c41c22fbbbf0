"""Bringing an agent's work home: a clean merge, or nothing and the reasons.

What is applied is what changed between the worktree as it was given out and as it was saved,
without ignored files and repositories inside it, as git would do. It goes into the user's present
tree as uncommitted changes, with index and HEAD untouched, or onto a branch as one commit, with
the tree untouched.

A tree is never left half changed. An error in the middle takes back what was done; so does
`recover` after a crash, by a note that is written before the first change. Only paths that are
still as the merge made them are taken back: what somebody edited since is theirs.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import UsageError
from infloop.workspace import beneath, locks
from infloop.workspace.changes import Change, changes
from infloop.workspace.merge import NOBODY, Clash, Conflict, commit, edited, merge
from infloop.workspace.objects import PROGRAM
from infloop.workspace.plan import leading_to, placements
from infloop.workspace.repository import Repository
from infloop.workspace.restore import STAGE, Work
from infloop.workspace.threads import in_thread
from infloop.workspace.trees import Difference

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from infloop.workspace.plan import Read, State
    from infloop.workspace.records import Saved
    from infloop.workspace.snapshot import SnapshotStore
    from infloop.workspace.trees import Trees

_BRANCH = "refs/heads/"


@dataclass(frozen=True, slots=True)
class Applied:
    """An agent's work, brought home.

    `before` is a snapshot of the user's tree that undoes it, or `commit` what `branch` now points
    at. `left_out` are paths that changed and that git ignores, or that are in a repository of
    their own.
    """

    changes: tuple[Change, ...]
    before: str | None = None
    branch: str | None = None
    commit: str | None = None
    left_out: tuple[str, ...] = ()


async def apply(
    store: SnapshotStore,
    saved: Saved,
    *,
    to_branch: str | None = None,
    message: str | None = None,
    author: str = NOBODY,
) -> Applied | Conflict:
    """Apply what was saved of a worktree to the user's tree, or to a branch, new or existing."""
    repo = Repository(store.git, Path(saved.repository), Path(saved.common))
    base, final = await store.state(saved.base), await store.state(saved.final)
    found = await _leaves(store.trees, base.files, final.files)
    apart = (*saved.ignored, *(path.removesuffix(".git") for path in final.notes.repositories))
    left_out = tuple(os.fsdecode(each.path) for each in found if _is_within(each.path, apart))
    wanted = [each for each in found if not _is_within(each.path, apart)]
    if not wanted:
        return Applied((), left_out=left_out)
    # Held, so that nobody prunes what is made on the way.
    async with repo.turn(), locks.shared(store.directory):
        if to_branch is None:
            done = await _to_tree(store, repo, base, wanted)
        else:
            said = _Message(message or f"Apply run {saved.run_id} ({saved.node})", author)
            done = await _to_branch(store, repo, saved.commit, wanted, to_branch, said)
    return done if isinstance(done, Conflict) else replace(done, left_out=left_out)


async def recover(store: SnapshotStore) -> list[Path]:
    """Take back what was being applied when a process died; return the trees it was done in."""
    recovered: list[Path] = []
    for note in _notes(store):
        pending = _Pending.read(note)
        if pending is None or not pending.is_there():
            note.unlink(missing_ok=True)
            continue
        async with locks.exclusive(Path(pending.common)):
            # Its own process may have finished in the meantime.
            if note.exists():
                await _take_back(store, pending)
                recovered.append(Path(pending.root))
    return recovered


class _Message(NamedTuple):
    text: str
    author: str


class _Pending(NamedTuple):
    """A tree that is being changed, from one stored state to another."""

    root: str
    common: str
    ours: str
    merged: str

    @property
    def name(self) -> str:
        return "apply-" + hashlib.sha256(os.fsencode(self.root)).hexdigest()[:32]

    @staticmethod
    def read(path: Path) -> _Pending | None:
        try:
            return _Pending(**json.loads(path.read_text(encoding="ascii")))
        except (OSError, ValueError, TypeError):
            return None

    def is_there(self) -> bool:
        """Say whether there still is such a tree, and a repository of it."""
        return Path(self.root).is_dir() and Path(self.common).is_dir()

    def begin(self, store: SnapshotStore) -> None:
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
        (store.directory / "pending" / self.name).unlink(missing_ok=True)
        store.unpin(self.name)


async def _to_tree(
    store: SnapshotStore, repo: Repository, base: State, wanted: Sequence[Difference]
) -> Applied | Conflict:
    await _recover_here(store, repo)
    theirs = await edited(store, store.trees, base.files, wanted, to="new")
    async with store.turn(repo.root) as root:
        read = await store.read(root)
        merged = await merge(store, store.trees, base.files, read.state.files, theirs)
        if isinstance(merged, Conflict):
            return merged
        found = await _leaves(store.trees, read.state.files, merged)
        if clashes := _unsaved_clashes(read.state, found):
            return Conflict(clashes)
        lines = await store.trees.lines(read.state.files, merged)
        if found:
            await _change(store, repo, root, read, merged, found)
    return Applied(tuple(changes(found, lines, ())), before=read.state.id)


async def _change(
    store: SnapshotStore,
    repo: Repository,
    root: Path,
    read: Read,
    merged: str,
    found: Sequence[Difference],
) -> None:
    """Change the tree, all of it or nothing."""
    pending = _Pending(str(root), str(repo.common), read.state.id, merged)
    pending.begin(store)
    try:
        await store.make(root, _work(read, found, _merged_mode(read)))
    except BaseException:
        await _take_back_here(store, root, pending)
        raise
    pending.end(store)


async def _take_back(store: SnapshotStore, pending: _Pending) -> None:
    async with store.turn(Path(pending.root)) as root:
        await _take_back_here(store, root, pending)


async def _take_back_here(store: SnapshotStore, root: Path, pending: _Pending) -> None:
    """Undo, path by path, what is as the merge made it; the caller has its turn at the root."""
    await in_thread(lambda _: _remove_stages(root))
    ours = await store.state(pending.ours)
    read = await store.read(root)
    edited_since = {
        each.path for each in await _leaves(store.trees, read.state.files, pending.merged)
    }
    applied = await _leaves(store.trees, ours.files, pending.merged)
    back = [
        Difference(each.path, each.new, each.old)
        for each in applied
        if each.path not in edited_since
    ]

    def mode(each: Difference) -> int | None:
        return ours.notes.permissions(each.path, each.new.mode) if each.new else None

    await store.make(root, _work(read, back, mode))
    known = await store.trees.listing(ours.files)
    made = {place for each in applied for place in _above(each.path) if place not in known}
    await in_thread(lambda _: _remove_hollow(root, made))
    pending.end(store)


async def _recover_here(store: SnapshotStore, repo: Repository) -> None:
    """Take back what an earlier apply to the same tree left half done; the caller has its turn."""
    for note in _notes(store):
        pending = _Pending.read(note)
        if pending and pending.common == str(repo.common):
            await _take_back(store, pending)


def _work(
    read: Read, found: Sequence[Difference], mode: Callable[[Difference], int | None]
) -> Work:
    placed, modes, permissions = placements(found, mode)
    return Work(placed, read.folder, modes, permissions, tidy=True)


def _merged_mode(read: Read) -> Callable[[Difference], int | None]:
    """Return what gives a changed file the permissions it had, but for the right to execute."""

    def mode(each: Difference) -> int | None:
        leaf = read.folder.leaf(each.path)
        if leaf is None or each.new is None or not stat.S_ISREG(leaf.mode):
            return None
        had = stat.S_IMODE(leaf.mode)
        return had | (had & 0o444) >> 2 if each.new.mode == PROGRAM else had & ~0o111

    return mode


async def _to_branch(
    store: SnapshotStore,
    repo: Repository,
    start: str,
    wanted: Sequence[Difference],
    branch: str,
    said: _Message,
) -> Applied | Conflict:
    ref = await _branch_ref(repo, branch)
    tip = await repo.ref(ref)
    parent = tip or start
    trees = store.trees.with_objects(repo.objects)
    ours = await repo.git.text(repo.shared, "rev-parse", "--verify", f"{parent}^{{tree}}")
    base, theirs = [await edited(store, trees, start, wanted, to=side) for side in ("old", "new")]
    merged = await merge(store, trees, base, ours, theirs)
    if isinstance(merged, Conflict):
        return merged
    if merged == ours and tip:
        return Applied((), branch=branch, commit=tip)
    made = await commit(store, merged, (parent,), said.text, said.author, store.now_ms())
    await _hand_over(store, repo, made, parent)
    await repo.advance_branch(ref, made, tip, "infloop: apply")
    found = await _leaves(trees, ours, merged)
    done = changes(found, await trees.lines(ours, merged), ())
    return Applied(tuple(done), branch=branch, commit=made)


async def _branch_ref(repo: Repository, branch: str) -> str:
    ref = _BRANCH + branch
    checked = await repo.git.call(repo.shared, "check-ref-format", ref, accept=(0, 1))
    if checked.exit_code or branch.startswith("-"):
        raise UsageError(f"{branch!r} cannot be the name of a branch")
    place = (await repo.checked_out()).get(ref)
    if place is not None:
        raise UsageError(
            f"branch {branch!r} is checked out in {place!r}: name another one, or apply without one"
        )
    return ref


async def _hand_over(store: SnapshotStore, repo: Repository, made: str, parent: str) -> None:
    """Copy a commit and what is new in it from the private store to the user's repository."""
    place = store.trees.with_objects(repo.objects).place
    scratch = store.directory / f"scratch-{secrets.token_hex(8)}"
    wanted = f"{made}\n^{parent}\n".encode()
    try:
        await store.git.call(place, "pack-objects", "--revs", "-q", str(scratch), stdin=wanted)
        pack = b"".join(path.read_bytes() for path in _beside(scratch, "*.pack"))
        await store.git.call(repo.shared, "unpack-objects", "-q", "--strict", stdin=pack)
    finally:
        for path in _beside(scratch, "*"):
            path.unlink()


def _beside(path: Path, ending: str) -> list[Path]:
    return list(path.parent.glob(f"{path.name}-{ending}"))


async def _leaves(trees: Trees, old: str, new: str) -> list[Difference]:
    """Return the differences that are not about directories."""
    return [each for each in await trees.differences(old, new) if _leaf(each)]


def _leaf(each: Difference) -> bool:
    entry = each.new or each.old
    return entry is not None and not entry.is_folder


def _is_within(path: bytes, places: Sequence[str]) -> bool:
    """Say whether a path is one of the places, or in one that ends with a slash."""
    name = os.fsdecode(path)
    return any(name.startswith(each) if each.endswith("/") else name == each for each in places)


def _unsaved_clashes(now: State, found: Sequence[Difference]) -> tuple[Clash, ...]:
    """Return the paths at which there is something that no snapshot could bring back."""
    unsaved = {each.path for each in now.notes.skipped}
    names = [os.fsdecode(each.path) for each in found]
    detail = "there is something that cannot be kept: too large, unreadable or no file"
    return tuple(Clash(name, "not kept", detail) for name in names if name in unsaved)


def _above(path: bytes) -> list[bytes]:
    return [os.fsencode(place) for place in leading_to(os.fsdecode(path))]


def _remove_hollow(root: Path, folders: Collection[bytes]) -> None:
    """Remove those of the directories in which there is nothing."""
    with beneath.opened(root) as directory:
        for path in sorted(folders, reverse=True):
            with suppress(OSError), beneath.parent(directory, path) as (above, name):
                os.rmdir(name, dir_fd=above)


def _notes(store: SnapshotStore) -> list[Path]:
    return sorted((store.directory / "pending").glob("apply-*"))


def _remove_stages(root: Path) -> None:
    """Remove staging directories that a process which died has left."""
    with beneath.opened(root) as directory:
        for entry in os.scandir(directory):
            name = os.fsencode(entry.name)
            if STAGE.fullmatch(name) and entry.is_dir(follow_symlinks=False):
                beneath.remove_tree(directory, name)
