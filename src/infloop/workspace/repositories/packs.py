"""A run's snapshots as packs of git objects, for a machine that has the same commit.

- A pack holds what the run changed: neither objects of the commit in which it started, nor those of
  earlier packs.
- A pack that comes back is untrusted. Its unpacked size is measured, then git checks it object by
  object in a temporary repository, then the trees are measured. Only then are the snapshots
  copied into our store, with everything that they need.

`git fetch` is not used: before version 2.46 it imports a bundle without checking it.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infloop.errors import NotFound, StepError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.lowlevel.remove_tree import remove_tree
from infloop.workspace.git.commands import GitContext, is_id
from infloop.workspace.snapshots.walk import TreeLimits
from infloop.workspace.threads import in_thread
from infloop.workspace.worktrees.clone import STRICT
from infloop.workspace.worktrees.pack_size import check_pack_size
from infloop.workspace.worktrees.tree_size import check_tree_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.worktrees.repository import Repository

_CONFIG = "[core]\n\trepositoryFormatVersion = 0\n\tbare = true\n"


async def make_pack(
    store: SnapshotStore,
    mirror: Repository,
    commit: str,
    wanted: Sequence[str],
    known: Sequence[str],
) -> bytes:
    """Return a pack of the snapshots `wanted`, for a reader that has `commit` and `known`."""
    context = store.trees.with_objects(mirror.objects).context
    left_out = [f"{commit}^{{tree}}", *known]
    asked = "".join((*(f"{each}\n" for each in wanted), *(f"^{each}\n" for each in left_out)))
    args = ("pack-objects", "--revs", "--stdout", "-q", "--threads=1", "--delta-base-offset")
    return (await store.git.call(context, *args, stdin=asked.encode())).stdout


async def import_packs(
    store: SnapshotStore,
    mirror: Repository,
    commit: str,
    packs: Sequence[bytes],
    snapshots: Sequence[str],
    owner: str,
) -> list[str]:
    """Store those of `snapshots` that the packs and the mirror hold, for an owner; return them.

    Raises StepError if a pack is too large, damaged or refers to objects that are missing.
    """
    store.objects.prepare()
    limits = TreeLimits()
    with _scratch_repository(store.directory, mirror) as context:
        for pack in packs:
            await in_thread(lambda _, pack=pack: check_pack_size(pack, limits))  # type: ignore[misc]
            await store.git.call(
                context, "index-pack", "--stdin", STRICT, "--threads=1", stdin=pack
            )
        found = await _existing_trees(store, context, snapshots)
        if found:
            await check_tree_size(store.git, context, found, commit, limits)
            asked = "".join(f"{each}\n" for each in found).encode()
            args = ("pack-objects", "--revs", "--stdout", "-q", "--threads=1")
            whole = (await store.git.call(context, *args, stdin=asked)).stdout
            async with hold_directory(store.directory, shared=True):
                await store.git.call(
                    store.trees.context, "index-pack", "--stdin", "--threads=1", stdin=whole
                )
                store.keep_for_owner(found, owner)
    return found


async def _existing_trees(
    store: SnapshotStore, context: GitContext, snapshots: Sequence[str]
) -> list[str]:
    asked = "".join(f"{each}\n" for each in snapshots if is_id(each)).encode()
    how = "--batch-check=%(objecttype) %(objectname)"
    answer = await store.git.call(context, "cat-file", how, stdin=asked)
    lines = (line.partition(" ") for line in answer.stdout.decode().splitlines())
    return list(dict.fromkeys(name for kind, _, name in lines if kind == "tree"))


async def missing_snapshots(store: SnapshotStore, snapshots: Sequence[str]) -> list[str]:
    """Return the snapshots that our store does not have."""
    missing = []
    for each in dict.fromkeys(snapshots):
        try:
            await store.stored_tree(each)
        except (NotFound, StepError):
            missing.append(each)
    return missing


@contextmanager
def _scratch_repository(directory: Path, mirror: Repository) -> Iterator[GitContext]:
    """Yield a temporary repository that borrows the objects of a mirror."""
    path = directory / f"scratch-{secrets.token_hex(8)}"
    try:
        for below in ("objects/pack", "objects/info", "refs/heads"):
            (path / below).mkdir(mode=0o700, parents=True)
        (path / "config").write_text(_CONFIG, encoding="ascii")
        (path / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        yield GitContext(directory, git_dir=path, objects=mirror.objects)
    finally:
        remove_tree(path)
