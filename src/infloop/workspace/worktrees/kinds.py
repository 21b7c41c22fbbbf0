"""The interface of the kinds of worktrees, which differ in their git directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from infloop.workspace.worktrees.commits import SavedCommits
    from infloop.workspace.worktrees.records import Record
    from infloop.workspace.worktrees.repository import Repository


class WorktreeKind(Protocol):
    """How the git directory of a worktree is created, and how its commits are saved."""

    async def create_git(
        self, repo: Repository, path: Path, commit: str, refs: Sequence[str]
    ) -> Path:
        """Create a worktree without files at `path`, at `commit`; return its git directory.

        `refs` are those that an earlier worktree left in the repository.
        """

    async def remove_git(self, repo: Repository, path: Path, admin: Path | None) -> None:
        """Remove everything that belongs to the worktree outside of `path`."""

    async def head(self, repo: Repository, admin: Path) -> str:
        """Return the checked-out commit, or an empty string."""

    async def save_commits(self, repo: Repository, record: Record) -> SavedCommits:
        """Keep its commits in the user's repository, under our own refs."""

    def set_owner(self, path: Path) -> None:
        """Give all files to the user who works in it."""
