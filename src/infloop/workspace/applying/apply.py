"""Bringing an agent's work home: a clean merge, or nothing and the reasons.

What is applied is what changed between the worktree as it was given out and as it was saved,
without ignored files and repositories inside it, as git would do. It goes into the user's present
tree as uncommitted changes, with index and HEAD untouched, or onto a branch as one commit, with
the tree untouched.

Changes to protected paths (see `infloop.policy.protected_paths`) are applied only if they are
allowed by name: other programs act on such files without being asked. So are links that lead
out of the tree (see `infloop.policy.links`).

A tree is never left half changed: an error in the middle takes back what was done, and so does
`pending.recover` after a crash.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import UsageError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.workspace.applying.merge import NOBODY, Clash, Conflict, commit, edited, merge
from infloop.workspace.applying.review import protected_changes
from infloop.workspace.applying.rollback import Pending, recover_in, take_back
from infloop.workspace.snapshots.changes import Change, changes
from infloop.workspace.snapshots.objects import PROGRAM
from infloop.workspace.snapshots.restore_plan import merged_work
from infloop.workspace.worktrees import checkout
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from infloop.workspace.snapshots.restore_plan import Read, State
    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.snapshots.trees import Difference
    from infloop.workspace.worktrees.records import Saved

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


@dataclass(frozen=True, slots=True)
class Protected:
    """Nothing was changed, because these paths are protected; each with the reason."""

    paths: dict[str, str]


async def apply(
    store: SnapshotStore,
    saved: Saved,
    *,
    to_branch: str | None = None,
    message: str | None = None,
    author: str = NOBODY,
    allow: Collection[str] = (),
) -> Applied | Conflict | Protected:
    """Apply what was saved of a worktree to the user's tree, or to a branch, new or existing.

    `allow` are protected paths that may change, directories with all that is in them.
    """
    repo = Repository(store.git, Path(saved.repository), Path(saved.common))
    base, final = await store.state(saved.base), await store.state(saved.final)
    found = await store.trees.leaves(base.files, final.files)
    apart = (*saved.ignored, *(path.removesuffix(".git") for path in final.notes.repositories))
    left_out = tuple(os.fsdecode(each.path) for each in found if _is_within(each.path, apart))
    wanted = [each for each in found if not _is_within(each.path, apart)]
    if not wanted:
        return Applied((), left_out=left_out)
    guarded = await protected_changes(store.trees, base.files, wanted)
    if refused := {path: why for path, why in guarded.items() if not _allows(allow, path)}:
        return Protected(refused)
    # Held, so that nobody prunes what is made on the way.
    async with repo.turn(), hold_directory(store.directory, shared=True):
        if to_branch is None:
            done = await _to_tree(store, repo, base, wanted)
        else:
            said = _Message(message or f"Apply run {saved.run_id} ({saved.node})", author)
            done = await _to_branch(store, repo, saved.commit, wanted, to_branch, said)
    return done if isinstance(done, Conflict) else replace(done, left_out=left_out)


async def in_the_way(store: SnapshotStore, saved: Saved) -> tuple[str, ...]:
    """Return the files that the work changes and in which the user has uncommitted changes too.

    Not those whose changes came along into the worktree, nor those that are as the agent left them.
    """
    repo = Repository(store.git, Path(saved.repository), Path(saved.common))
    base, final = await store.state(saved.base), await store.state(saved.final)
    touched = {each.path for each in await store.trees.leaves(base.files, final.files)}
    async with store.turn(repo.root) as root:
        now = (await store.read(root, keep=False)).state.files
    for known in (base.files, final.files):
        touched &= {each.path for each in await store.trees.leaves(known, now)}
    head = await repo.commit("HEAD") if touched else None
    edits = await checkout.uncommitted(store, repo, head) if head else []
    return tuple(os.fsdecode(path) for path in edits if path in touched)


def _allows(allowed: Collection[str], path: str) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in allowed)


class _Message(NamedTuple):
    text: str
    author: str


async def _to_tree(
    store: SnapshotStore, repo: Repository, base: State, wanted: Sequence[Difference]
) -> Applied | Conflict:
    await recover_in(store, repo.common)
    theirs = await edited(store, store.trees, base.files, wanted, to="new")
    async with store.turn(repo.root) as root:
        read = await store.read(root)
        merged = await merge(store, store.trees, base.files, read.state.files, theirs)
        if isinstance(merged, Conflict):
            return merged
        found = await store.trees.leaves(read.state.files, merged)
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
    pending = Pending(str(root), str(repo.common), read.state.id, merged)
    pending.begin(store)
    try:
        await store.make(root, merged_work(read, found, _merged_mode(read)))
    except BaseException:
        await take_back(store, root, pending)
        raise
    pending.end(store)


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
    found = await trees.leaves(ours, merged)
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
