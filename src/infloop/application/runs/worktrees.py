"""Worktrees in which agents work: list, prune, restore, forget."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from infloop.application.models import Model
from infloop.errors import NotFound, UsageError
from infloop.runtime.runs.run_status import is_known, is_over

if TYPE_CHECKING:
    from infloop.application.caller import Caller
    from infloop.application.resources import Resources


class WorktreeEntry(Model, kw_only=True):
    """A worktree. If `saved`, its state is stored and can be restored."""

    name: str
    run_id: str
    node: str
    repository: str
    path: str
    status: Literal["in use", "orphaned", "saved"]
    created_at: int
    saved: bool


class WorktreeList(Model, kw_only=True):
    """All worktrees, the oldest first."""

    worktrees: list[WorktreeEntry]


class PruneResult(Model, kw_only=True):
    """What was saved and removed, and how many deleted runs had snapshots."""

    messages: list[str]
    dropped_runs: int


class Worktrees:
    """The worktrees and snapshots of a data directory."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def all(self) -> WorktreeList:
        trees = (await self._resources.workspaces()).trees
        return WorktreeList(
            worktrees=[
                WorktreeEntry(
                    name=each.name,
                    run_id=each.run_id,
                    node=each.node,
                    repository=each.repository,
                    path=each.path,
                    status=each.status,
                    created_at=each.created_at_ms,
                    saved=each.saved is not None,
                )
                for each in trees.list_all()
            ]
        )

    async def prune(self) -> PruneResult:
        """Save and remove the worktrees of dead processes; drop the snapshots of deleted runs."""
        workspaces = await self._resources.workspaces()
        run_log = self._resources.store.run_log
        messages = await workspaces.recover(partial(is_over, run_log))
        dropped = await workspaces.drop_snapshots(partial(is_known, run_log))
        return PruneResult(messages=messages, dropped_runs=dropped)

    async def restore(self, name: str, path: str) -> list[str]:
        """Write a saved worktree, or a snapshot, to a path where there is nothing.

        Return the files that got another name, because your git settings name them.
        """
        workspaces = await self._resources.workspaces()
        found = {each.name: each for each in workspaces.trees.list_all()}.get(name)
        if found is None:
            try:
                await workspaces.write_out(name, Path(path))
            except NotFound as error:
                raise UsageError(f"there is no worktree {name!r}, and {error}") from None
        elif found.saved is None:
            raise UsageError(f"worktree {name!r} is {found.status}: it is still at {found.path}")
        else:
            return await workspaces.restore_worktree(found.saved, Path(path))
        return []

    async def forget(self, name: str, caller: Caller) -> None:
        """Delete what was saved of a removed worktree. It cannot be restored afterwards."""
        trees = (await self._resources.workspaces()).trees
        found = {each.name: each for each in trees.list_all()}.get(name)
        if found is not None and found.status == "saved":
            await self._resources.audit().record(
                "worktree.deleted",
                caller.actor,
                correlation_id=caller.correlation_id,
                run_id=found.run_id,
                details={"worktree": name, "repository": found.repository},
            )
        await trees.forget(name)
