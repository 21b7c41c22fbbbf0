"""What a worktree can be, as far as git is concerned; its files are the same whatever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from infloop.workspace.worktrees.commits import Kept
    from infloop.workspace.worktrees.records import Record
    from infloop.workspace.worktrees.repository import Repository


class Kind(Protocol):
    """How worktrees of one kind are made, and how their commits come home."""

    async def make(self, repo: Repository, path: Path, commit: str, refs: Sequence[str]) -> Path:
        """Make one at `path` without files; return where its git is.

        It begins at the commit. `refs` are those that an earlier one has left in the repository.
        """

    async def unmake(self, repo: Repository, path: Path, admin: Path | None) -> None:
        """Remove what there is of it outside of `path`."""

    async def head(self, repo: Repository, admin: Path) -> str:
        """Return the commit that is checked out, or nothing."""

    async def keep_commits(self, repo: Repository, record: Record) -> Kept:
        """Keep its commits in the user's repository, under refs of our own."""

    def hand_over(self, path: Path) -> None:
        """Let who is to work in it have all files."""
