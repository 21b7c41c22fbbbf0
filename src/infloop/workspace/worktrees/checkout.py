"""Files of the user's repository in a work tree, looked at by a git of our own.

The repository lends its objects; configuration and attributes are ours, so that files are written
and compared byte for byte and no filter runs. The index is a scratch one.
"""

from __future__ import annotations

import os
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infloop.errors import InfloopError
from infloop.workspace.git.commands import Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.worktrees.repository import Repository


async def lay_out(
    store: SnapshotStore, repo: Repository, path: Path, admin: Path, commit: str
) -> None:
    """Write the files of a commit into a worktree, and the index that says so."""
    store.objects.prepare()
    place = Place(path, store.directory, path, admin / "index", repo.objects)
    await repo.git.call(place, "read-tree", "--reset", "-u", commit)


async def uncommitted(store: SnapshotStore, repo: Repository, commit: str) -> list[bytes]:
    """Return the paths in the user's tree that differ from a commit, ignored ones left out."""
    async with _scratch(store, repo, repo.root, commit) as place:
        asked = ("ls-files", "-z", "--modified", "--others", *repo.ignore_rules)
        answer = await repo.git.call(place, *asked)
    # A name with a slash is a repository inside the tree.
    found = {path for path in answer.stdout.split(b"\0") if path and not path.endswith(b"/")}
    return sorted(found)


async def ignored(
    store: SnapshotStore, repo: Repository, root: Path, commit: str
) -> tuple[str, ...]:
    """Return what git ignores in a tree, directories with a slash; nothing if it cannot say."""
    try:
        async with _scratch(store, repo, root, commit) as place:
            asked = ("ls-files", "-z", "--others", "--ignored", "--directory", *repo.ignore_rules)
            answer = await repo.git.call(place, *asked, deadline_s=60)
    except InfloopError:  # an agent may have left rules that never end; its work is saved anyway
        return ()
    return tuple(os.fsdecode(path) for path in answer.stdout.split(b"\0") if path)


@asynccontextmanager
async def _scratch(
    store: SnapshotStore, repo: Repository, root: Path, commit: str
) -> AsyncIterator[Place]:
    """Give a place where a work tree is compared to a commit, with an index of its own."""
    store.objects.prepare()
    index = store.directory / f"scratch-{secrets.token_hex(8)}"
    place = Place(root, store.directory, root, index, repo.objects)
    try:
        await repo.git.call(place, "read-tree", commit)
        yield place
    finally:
        for left in (index, index.with_suffix(".lock")):
            left.unlink(missing_ok=True)
