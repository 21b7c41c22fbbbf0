"""Which commits a worktree has made, and the refs that keep them.

Kept are the one checked out, and those the worktree had checked out before and that nothing leads
to any more.
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


class Kept(NamedTuple):
    """The commit that was checked out, the refs that keep the others, and why some are not."""

    head: str
    refs: tuple[str, ...] = ()
    problem: str = ""


async def keep(inside: Repository, repo: Repository, record: Record) -> Kept:
    """Point refs in the repository at all commits of a worktree, whose own git is `inside`."""
    head, refs = await find(inside, repo, record)
    await repo.set_refs(refs)
    return Kept(head, tuple(refs))


async def find(inside: Repository, repo: Repository, record: Record) -> tuple[str, dict[str, str]]:
    """Return the commit that is checked out, and what refs have to point at."""
    admin = Path(record.admin or repo.common / "nowhere")
    said = repository.head_of(admin)
    head = (said if is_id(said) else await inside.ref(said) if said else None) or record.commit
    earlier = record.saved.refs if record.saved else ()
    kept = [commit for ref in earlier if (commit := await repo.ref(ref))]
    own = await inside.only_reachable_from([head], [record.commit])
    dropped = await inside.only_reachable_from(
        [*kept, *repository.visited(admin)], [record.commit, head]
    )
    name = ref_name(record)
    refs = {name: head} if own else {}
    return head, refs | {f"{name}-dropped-{commit[:12]}": commit for commit in dropped}
