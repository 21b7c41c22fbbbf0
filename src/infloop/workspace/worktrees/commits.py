"""Finds the commits a worktree made, and sets refs that keep them.

These are the checked-out commit, and commits that were checked out before and that no ref reaches.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.workspace.git.commands import is_id
from infloop.workspace.worktrees import repository
from infloop.workspace.worktrees.naming import ref_name

if TYPE_CHECKING:
    from infloop.workspace.worktrees.records import Record
    from infloop.workspace.worktrees.repository import Repository


class SavedCommits(NamedTuple):
    """The checked-out commit, the refs that keep all commits, and why some are missing."""

    head: str
    refs: tuple[str, ...] = ()
    problem: str = ""


async def save(inside: Repository, repo: Repository, record: Record) -> SavedCommits:
    """Set refs in the repository for all commits of a worktree, whose own git is `inside`."""
    head, refs = await find(inside, repo, record)
    await repo.set_refs(refs)
    return SavedCommits(head, tuple(refs))


async def find(inside: Repository, repo: Repository, record: Record) -> tuple[str, dict[str, str]]:
    """Return the checked-out commit, and the refs to set."""
    admin = Path(record.admin or repo.common / "nowhere")
    head = repository.read_head(admin)
    if head and not is_id(head):
        head = await inside.ref(head) or ""
    head = head or record.commit
    earlier = record.saved.refs if record.saved else ()
    earlier_commits = [commit for ref in earlier if (commit := await repo.ref(ref))]
    own = await inside.only_reachable_from([head], [record.commit])
    dropped = await inside.only_reachable_from(
        [*earlier_commits, *repository.reflog_commits(admin)], [record.commit, head]
    )
    name = ref_name(record)
    refs = {name: head} if own else {}
    return head, refs | {f"{name}-dropped-{commit[:12]}": commit for commit in dropped}
