"""Files of the user's repository in a work tree, looked at by a git of our own.

The repository lends its objects; configuration and attributes are ours, so that files are written
and compared byte for byte and no filter runs. The index is a scratch one.
"""

from __future__ import annotations

import os
import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from infloop.errors import InfloopError, StepError
from infloop.workspace import beneath
from infloop.workspace.git import Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from infloop.workspace.repository import Repository
    from infloop.workspace.snapshot import SnapshotStore


async def register(repo: Repository, path: Path, commit: str) -> Path:
    """Have git make an empty worktree at `path`; return where git keeps its side of it."""
    async with repo.turn():
        args = ("worktree", "add", "--detach", "--no-checkout", "--quiet", "--", str(path), commit)
        await repo.git.call(Place(repo.root, git_dir=repo.common), *args)
    return admin_of(repo, path)


def admin_of(repo: Repository, path: Path) -> Path:
    """Return git's side of the worktree at `path`, found by what git wrote down itself."""
    wanted = os.fsencode(path / ".git")
    for admin in (repo.common / "worktrees").glob("*"):
        try:
            if (admin / "gitdir").read_bytes().rstrip(b"\n") == wanted:
                return admin
        except OSError:
            continue
    raise StepError(f"the repository {str(repo.common)!r} knows no worktree at {str(path)!r}")


async def unregister(repo: Repository, path: Path, admin: Path | None) -> None:
    """Remove git's side of a worktree, as `git worktree remove` does, and of no other."""
    if not repo.common.is_dir():
        return
    worktrees = repo.common / "worktrees"
    async with repo.turn():
        # A git that was killed may have written nothing there but the name, which is ours alone.
        with suppress(StepError), beneath.opened(worktrees) as directory:
            for name in {path.name, (admin or path).name}:
                beneath.remove_tree(directory, os.fsencode(name))
            if not any(worktrees.iterdir()):
                worktrees.rmdir()


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
