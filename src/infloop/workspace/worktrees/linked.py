"""The plain kind of worktree: one of the user's repository, registered there by git.

It shares objects, refs and configuration with the repository: whoever works in it can change those.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import InfloopError, StepError
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.workspace import beneath
from infloop.workspace.git.commands import Place, is_id
from infloop.workspace.snapshots.walk import Limits
from infloop.workspace.worktrees import commits, repository
from infloop.workspace.worktrees.tree_size import refuse_endless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.workspace.worktrees.commits import Kept
    from infloop.workspace.worktrees.records import Record
    from infloop.workspace.worktrees.repository import Repository


class Linked:
    """Worktrees that git knows of; see `infloop.workspace.worktrees.kinds.Kind`."""

    async def make(self, repo: Repository, path: Path, commit: str, refs: Sequence[str]) -> Path:
        """Have git make an empty worktree at `path`; the refs are in the repository anyway."""
        async with repo.turn():
            how = ("--detach", "--no-checkout", "--quiet")
            args = ("worktree", "add", *how, "--", str(path), commit)
            await repo.git.call(Place(repo.root, git_dir=repo.common), *args)
        return _admin_of(repo, path)

    async def unmake(self, repo: Repository, path: Path, admin: Path | None) -> None:
        """Remove git's side of a worktree, as `git worktree remove` does, and of no other."""
        if not repo.common.is_dir():
            return
        worktrees = repo.common / "worktrees"
        async with repo.turn():
            # A git that was killed may have written nothing there but the name, ours alone.
            with suppress(StepError), beneath.opened(worktrees) as directory:
                for name in {path.name, (admin or path).name}:
                    remove_tree_at(directory, name)
                if not any(worktrees.iterdir()):
                    worktrees.rmdir()

    async def head(self, repo: Repository, admin: Path) -> str:
        """Return the commit that is checked out, or nothing."""
        said = repository.head_of(admin)
        return said if not said or is_id(said) else await repo.ref(said) or ""

    async def keep_commits(self, repo: Repository, record: Record) -> Kept:
        """Point refs at the commits of a worktree, which are in the repository already."""
        if not repo.common.is_dir():
            return commits.Kept("")
        kept = await commits.keep(repo, repo, record)
        if kept.head == record.commit:
            return kept
        try:
            await refuse_endless(repo.git, repo.shared, [kept.head], record.commit, Limits())
        except InfloopError as error:
            problem = f"the commit that it had checked out will not be checked out again: {error}"
            return kept._replace(head=record.commit, problem=problem)
        return kept

    def hand_over(self, path: Path) -> None:
        """Leave it to whoever runs this process: children run as the same user."""


def _admin_of(repo: Repository, path: Path) -> Path:
    """Return git's side of the worktree at `path`, found by what git wrote down itself."""
    wanted = os.fsencode(path / ".git")
    for admin in (repo.common / "worktrees").glob("*"):
        try:
            if (admin / "gitdir").read_bytes().rstrip(b"\n") == wanted:
                return admin
        except OSError:
            continue
    raise StepError(f"the repository {str(repo.common)!r} knows no worktree at {str(path)!r}")
