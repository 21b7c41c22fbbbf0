"""Applies an agent's changes to the user's tree or to a branch, completely or not at all.

- The changes are those that `selection` chooses between the worktree's first and last snapshot.
- They go to the user's work tree as uncommitted changes, with index and HEAD untouched, or to a
  branch as one commit, with the work tree untouched.
- Changes to protected paths are applied only if they are allowed by name, because other programs
  act on such files (see `infloop.policy.protected_paths`). The same holds for links out of the tree
  (see `infloop.policy.links`), and for files to which a secret was added.
- A tree is never left half changed. An error rolls back the changes; after a crash
  `rollback.recover` does.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.errors import UsageError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.workspace.applying.merge import (
    DEFAULT_AUTHOR,
    MergeConflict,
    PathConflict,
    commit,
    edit_tree,
    merge,
)
from infloop.workspace.applying.review import protected_changes
from infloop.workspace.applying.rollback import PendingApply, recover_repository, roll_back
from infloop.workspace.applying.selection import Selection, saved_work, select
from infloop.workspace.snapshots.changes import Change, changes
from infloop.workspace.snapshots.objects import EXECUTABLE
from infloop.workspace.snapshots.restore_plan import merge_update
from infloop.workspace.worktrees import checkout
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from infloop.workspace.snapshots.restore_plan import ScannedTree, StoredTree
    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.snapshots.trees import Difference
    from infloop.workspace.worktrees.records import Saved

_BRANCH = "refs/heads/"


class Applied(msgspec.Struct, frozen=True):
    """The result of a successful apply.

    - `before` is a snapshot of the user's tree that undoes it, if the tree was changed.
    - `branch` and `commit` are set if a branch was changed.
    """

    changes: tuple[Change, ...]
    before: str | None = None
    branch: str | None = None
    commit: str | None = None


class ProtectedChanges(msgspec.Struct, frozen=True):
    """Nothing was applied, because nobody allowed these paths; the values are the reasons."""

    paths: dict[str, str]


async def apply(
    store: SnapshotStore,
    saved: Saved,
    selection: Selection | None = None,
    *,
    to_branch: str | None = None,
    message: str | None = None,
    author: str = DEFAULT_AUTHOR,
    allow: Collection[str] = (),
    named: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Applied | MergeConflict | ProtectedChanges:
    """Apply changes of a saved worktree to the user's tree, or to a new or existing branch.

    Without a selection these are all changes that git does not ignore.
    `allow` are protected paths that may change; a directory includes everything in it. `named` are
    the paths that the user's git settings name, each with the reason; they are protected too.
    `secrets` are files that hold a secret, each with the reason; they need the same permission.
    """
    repo = Repository(store.git, Path(saved.repository), Path(saved.common))
    selection = selection or await select(store, saved_work(saved))
    wanted = selection.chosen
    if not wanted:
        return Applied(())
    protected = await protected_changes(store.trees, selection.base, wanted, named)
    for path, why in (secrets or {}).items():
        protected[path] = f"{protected[path]}; {why}" if path in protected else why
    if refused := {path: why for path, why in protected.items() if not _allows(allow, path)}:
        return ProtectedChanges(refused)
    # The lock keeps new objects from being pruned before a ref protects them.
    async with repo.lock(), hold_directory(store.directory, shared=True):
        if to_branch is None:
            return await _to_tree(store, repo, selection.base, wanted)
        text = message or f"Apply run {saved.run_id} ({saved.node})"
        return await _to_branch(
            store, repo, saved.commit, wanted, to_branch, _Message(text, author)
        )


async def overlapping_edits(
    store: SnapshotStore, saved: Saved, selection: Selection
) -> tuple[str, ...]:
    """Return the files that would be applied and in which the user has uncommitted changes.

    Changes that were copied into the worktree do not count, nor do files that equal the agent's.
    """
    repo = Repository(store.git, Path(saved.repository), Path(saved.common))
    final = await store.stored_tree(saved.final)
    touched = {each.path for each in selection.chosen}
    async with store.lock_root(repo.root) as root:
        now = (await store.read(root, keep=False)).stored.files
    for known in (selection.base, final.files):
        touched &= {each.path for each in await store.trees.leaves(known, now)}
    head = await repo.commit("HEAD") if touched else None
    edits = await checkout.uncommitted_paths(store, repo, head) if head else []
    return tuple(os.fsdecode(path) for path in edits if path in touched)


def _allows(allowed: Collection[str], path: str) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in allowed)


class _Message(NamedTuple):
    text: str
    author: str


async def _to_tree(
    store: SnapshotStore, repo: Repository, base: str, wanted: Sequence[Difference]
) -> Applied | MergeConflict:
    await recover_repository(store, repo.common)
    theirs = await edit_tree(store, store.trees, base, wanted, to="new")
    async with store.lock_root(repo.root) as root:
        scan = await store.read(root)
        merged = await merge(store, store.trees, base, scan.stored.files, theirs)
        if isinstance(merged, MergeConflict):
            return merged
        found = await store.trees.leaves(scan.stored.files, merged)
        if conflicts := _unsaved_conflicts(scan.stored, found):
            return MergeConflict(conflicts)
        lines = await store.trees.lines(scan.stored.files, merged)
        if found:
            await _change(store, repo, root, scan, merged, found)
    return Applied(tuple(changes(found, lines, ())), before=scan.stored.id)


async def _change(
    store: SnapshotStore,
    repo: Repository,
    root: Path,
    scan: ScannedTree,
    merged: str,
    found: Sequence[Difference],
) -> None:
    """Change the tree completely, or roll back and raise."""
    pending = PendingApply(str(root), str(repo.common), scan.stored.id, merged)
    pending.begin(store)
    try:
        await store.update_tree(root, merge_update(scan, found, _merged_mode(scan)))
    except BaseException:
        await roll_back(store, root, pending)
        raise
    pending.end(store)


def _merged_mode(scan: ScannedTree) -> Callable[[Difference], int | None]:
    """Return a function that keeps a file's permissions and sets its execute bits."""

    def mode(each: Difference) -> int | None:
        leaf = scan.folder.leaf(each.path)
        if leaf is None or each.new is None or not stat.S_ISREG(leaf.mode):
            return None
        had = stat.S_IMODE(leaf.mode)
        return had | (had & 0o444) >> 2 if each.new.mode == EXECUTABLE else had & ~0o111

    return mode


async def _to_branch(
    store: SnapshotStore,
    repo: Repository,
    start: str,
    wanted: Sequence[Difference],
    branch: str,
    message: _Message,
) -> Applied | MergeConflict:
    ref = await _branch_ref(repo, branch)
    tip = await repo.ref(ref)
    parent = tip or start
    trees = store.trees.with_objects(repo.objects)
    ours = await repo.git.text(repo.shared, "rev-parse", "--verify", f"{parent}^{{tree}}")
    base, theirs = [
        await edit_tree(store, trees, start, wanted, to=side) for side in ("old", "new")
    ]
    merged = await merge(store, trees, base, ours, theirs)
    if isinstance(merged, MergeConflict):
        return merged
    if merged == ours and tip:
        return Applied((), branch=branch, commit=tip)
    made = await commit(store, merged, (parent,), message.text, message.author, store.now_ms())
    await _copy_commit(store, repo, made, parent)
    await repo.advance_branch(ref, made, tip, "infloop: apply")
    found = await trees.leaves(ours, merged)
    done = changes(found, await trees.lines(ours, merged), ())
    return Applied(tuple(done), branch=branch, commit=made)


async def _branch_ref(repo: Repository, branch: str) -> str:
    ref = _BRANCH + branch
    checked = await repo.git.call(repo.shared, "check-ref-format", ref, accept=(0, 1))
    if checked.exit_code or branch.startswith("-"):
        raise UsageError(f"{branch!r} is not a valid branch name")
    work_tree = (await repo.checked_out()).get(ref)
    if work_tree is not None:
        raise UsageError(
            f"branch {branch!r} is checked out in {work_tree!r}: name another one, or apply "
            "without one"
        )
    return ref


async def _copy_commit(store: SnapshotStore, repo: Repository, made: str, parent: str) -> None:
    """Copy a commit and its new objects from the private store to the user's repository."""
    context = store.trees.with_objects(repo.objects).context
    scratch = store.directory / f"scratch-{secrets.token_hex(8)}"
    wanted = f"{made}\n^{parent}\n".encode()
    try:
        await store.git.call(context, "pack-objects", "--revs", "-q", str(scratch), stdin=wanted)
        pack = b"".join(path.read_bytes() for path in _scratch_files(scratch, "*.pack"))
        await store.git.call(repo.shared, "unpack-objects", "-q", "--strict", stdin=pack)
    finally:
        for path in _scratch_files(scratch, "*"):
            path.unlink()


def _scratch_files(path: Path, ending: str) -> list[Path]:
    return list(path.parent.glob(f"{path.name}-{ending}"))


def _unsaved_conflicts(now: StoredTree, found: Sequence[Difference]) -> tuple[PathConflict, ...]:
    """Return conflicts for changed paths whose present content no snapshot can hold."""
    unsaved = {each.path for each in now.metadata.skipped}
    names = [os.fsdecode(each.path) for each in found]
    detail = "no snapshot can hold what is there: too large, unreadable or not a file"
    return tuple(PathConflict(name, "not kept", detail) for name in names if name in unsaved)
