"""The checkout of a run whose workspace is a repository.

- It is made when the first step needs it: the repository is fetched, and a private clone of the
  mirror is the run's working directory.
- A resumed run goes on in its checkout if that is here. Otherwise, and after a rewind, the same
  commit is checked out and its newest stored snapshot restored; the run says what is missing.
- Snapshots are stored for other machines before the journal names them. The checkout is removed at
  the end of the run when its last state is stored, and stays otherwise.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.errors import GuardError, InfloopError
from infloop.model.events import Notice, WorkspaceFetched, WorkspaceStored
from infloop.runtime.timeline import WorkspaceHistory
from infloop.workspace.repositories.packs import make_pack, missing_snapshots
from infloop.workspace.worktrees.records import RUN_CHECKOUT
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.events import Event
    from infloop.runtime.stored_snapshots import StoredSnapshots
    from infloop.runtime.workspaces import Workspaces
    from infloop.workspace.worktrees.worktree import Worktree

    Post = Callable[[Event], None]

MAX_IGNORED = 5_000
"""A longer list of ignored paths is not stored; the files are part of the result then."""
_KNOWN_SNAPSHOTS = 4
"""So many of the newest stored snapshots are left out of the next pack."""


class RunCheckout:
    """The checkout of one run; `epoch` is that of this process."""

    def __init__(
        self, shared: Workspaces, run_id: str, history: WorkspaceHistory, stored: StoredSnapshots
    ) -> None:
        self._shared = shared
        self._run_id = run_id
        self._history = history
        self._snapshots = stored
        self._lock = asyncio.Lock()
        self._stored: list[str] = []
        self._failed = False
        self.epoch = 0
        self.worktree: Worktree | None = None

    async def enter(self, post: Post) -> Worktree:
        """Return the checkout; make it if necessary. GuardError fails the run."""
        async with self._lock:
            if self.worktree is None:
                try:
                    self.worktree = await self._make(post)
                except GuardError:
                    raise
                except (InfloopError, OSError) as error:
                    raise GuardError(f"the run has no checkout to work in: {error}") from None
        return self.worktree

    def is_here(self) -> bool:
        """Say whether this machine has the checkout in which the run worked last."""
        fetched = self._history.fetched
        names = [
            each.name for each in self._shared.listed(self._run_id) if each.node == RUN_CHECKOUT
        ]
        return fetched is not None and fetched.checkout in names

    async def store_snapshot(self, snapshot: str, post: Post) -> bool:
        """Store a snapshot for other machines; say whether it is stored."""
        if snapshot in self._stored:
            return True
        try:
            await self._store([snapshot])
        except (InfloopError, OSError) as error:
            if not self._failed:
                self._failed = True
                message = f"other machines do not see what the run changed: {error}"
                post(Notice(message, level="warning"))
            return False
        return True

    async def store_last_state(self, post: Post) -> bool:
        """Store the state of the checkout at the end of the run; say whether it can be removed."""
        worktree = self.worktree
        if worktree is None:
            return True
        try:
            last = await self._shared.store.take_for_owner(worktree.path, self._run_id)
        except (InfloopError, OSError) as error:
            message = f"the last state of the checkout {str(worktree.path)!r} is not saved: {error}"
            post(Notice(message, level="warning"))
            return False
        if not await self.store_snapshot(last.stored.id, post):
            return False
        ignored = await self._shared.trees.ignored(worktree.name)
        kept = ignored if len(ignored) <= MAX_IGNORED else ()
        post(WorkspaceStored(last.stored.id, kept))
        return True

    async def _make(self, post: Post) -> Worktree:
        source, fetched = self._history.source, self._history.fetched
        self._shared.mirrors.check(source.repository, source.ref)
        trees = self._shared.trees
        if fetched is not None and self.is_here():
            found = await trees.reopen(self._run_id, RUN_CHECKOUT)
            if found is not None and found.name == fetched.checkout:
                return found
        await trees.prune([self._run_id])  # of an earlier time: the run went on elsewhere
        ref = fetched.commit if fetched else source.ref
        mirror, commit = await self._shared.mirrors.fetch(source.repository, ref)
        made = await trees.create_checkout(mirror, commit, self._run_id, source.ref)
        try:
            if fetched is not None:
                await self._restore(made, post)
        except BaseException:
            await trees.remove(made)
            raise
        post(WorkspaceFetched(source.repository, source.ref, commit, made.name))
        return made

    async def _restore(self, made: Worktree, post: Post) -> None:
        """Restore the newest snapshot of the run that this machine has or can import."""
        self.worktree = made  # `_store` needs it
        try:
            await self._snapshots.bring(self._run_id)
            history, store = self._history, self._shared.store
            missing = set(await missing_snapshots(store, history.snapshots))
            present = [each for each in history.snapshots if each not in missing]
            if present:
                await self._shared.trees.rewind(made, present[-1])
                await self._store(present)
        finally:
            self.worktree = None
        steps = dict(history.states)
        where = f"as they were at {steps[present[-1]]}" if present else "those of the commit"
        lost = f", and {len(missing)} later snapshots were not stored" if missing else ""
        message = (
            f"the run goes on in a new checkout of {made.commit[:12]}: its files are {where}; what "
            f"was changed after that was on another machine or in another run{lost}"
        )
        post(Notice(message, level="warning" if missing else "info"))

    async def _store(self, snapshots: list[str]) -> None:
        worktree = self.worktree
        assert worktree is not None
        mirror = Repository(self._shared.store.git, worktree.repository, worktree.repository)
        known = self._stored[-_KNOWN_SNAPSHOTS:]
        pack = await make_pack(self._shared.store, mirror, worktree.commit, snapshots, known)
        await self._snapshots.results.save(self._run_id, self.epoch, pack)
        self._stored += snapshots
