"""Worktrees of unconfined agents: git worktrees of the user's repository.

They share objects, refs and configuration with the repository, so an agent can change those.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import InfloopError, StepError
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.workspace import beneath
from infloop.workspace.git.commands import GitContext, is_id
from infloop.workspace.snapshots.walk import TreeLimits
from infloop.workspace.worktrees import commits, repository
from infloop.workspace.worktrees.tree_size import check_tree_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.workspace.worktrees.commits import SavedCommits
    from infloop.workspace.worktrees.records import Record
    from infloop.workspace.worktrees.repository import Repository


class LinkedKind:
    """Worktrees that git registers; see `infloop.workspace.worktrees.kinds.WorktreeKind`."""

    async def create_git(
        self, repo: Repository, path: Path, commit: str, refs: Sequence[str]
    ) -> Path:
        """Register an empty worktree at `path`; the refs are in the repository already."""
        async with repo.lock():
            how = ("--detach", "--no-checkout", "--quiet")
            args = ("worktree", "add", *how, "--", str(path), commit)
            await repo.git.call(GitContext(repo.root, git_dir=repo.common), *args)
        return _admin_of(repo, path)

    async def remove_git(self, repo: Repository, path: Path, admin: Path | None) -> None:
        """Remove the registration, as `git worktree remove` does."""
        if not repo.common.is_dir():
            return
        worktrees = repo.common / "worktrees"
        async with repo.lock():
            # A git that was killed may have created only the directory, whose name is unique.
            with suppress(StepError), beneath.open_root(worktrees) as directory:
                for name in {path.name, (admin or path).name}:
                    remove_tree_at(directory, name)
                if not any(worktrees.iterdir()):
                    worktrees.rmdir()

    async def head(self, repo: Repository, admin: Path) -> str:
        """Return the checked-out commit, or an empty string."""
        head = repository.read_head(admin)
        return head if not head or is_id(head) else await repo.ref(head) or ""

    async def save_commits(self, repo: Repository, record: Record) -> SavedCommits:
        """Set refs for the commits, which are in the repository already."""
        if not repo.common.is_dir():
            return commits.SavedCommits("")
        saved = await commits.save(repo, repo, record)
        if saved.head == record.commit:
            return saved
        try:
            await check_tree_size(repo.git, repo.shared, [saved.head], record.commit, TreeLimits())
        except InfloopError as error:
            problem = f"its checked-out commit will not be checked out again: {error}"
            return saved._replace(head=record.commit, problem=problem)
        return saved

    def set_owner(self, path: Path) -> None:
        """Do nothing: children run as the same user."""


def _admin_of(repo: Repository, path: Path) -> Path:
    """Return git's own directory for the worktree at `path`, found by its `gitdir` file."""
    wanted = os.fsencode(path / ".git")
    for admin in (repo.common / "worktrees").glob("*"):
        try:
            if (admin / "gitdir").read_bytes().rstrip(b"\n") == wanted:
                return admin
        except OSError:
            continue
    raise StepError(f"the repository {str(repo.common)!r} has no worktree at {str(path)!r}")
