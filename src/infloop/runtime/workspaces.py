"""Worktrees for nodes, and a snapshot of the directory before and after each step.

There is one `Workspaces` for a process, one `RunWorkspace` for a run and one `StepWorkspace` for a
step.

- A node has one worktree in a run. The rounds of a loop share it, and a resumed run goes on in it.
- At the end of the run its worktrees are saved and removed. `Workspaces.recover` does that for the
  runs of a process that died.
- Snapshots are taken around each step that may change files. A directory that is too large, or a
  home directory, gets no snapshots; the run says so once and goes on.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from infloop.errors import InfloopError, StepError, StoreError, UsageError
from infloop.model.events import WORKSPACE, Notice, TreeRestored, TreeSaved
from infloop.nodes.base import TakenSnapshots
from infloop.policy.protected_paths import named_reason
from infloop.policy.writable_roots import why_too_wide
from infloop.runtime.confinement.git_protection import GitProtection, KnownRepositories
from infloop.runtime.confinement.programs import limited_in, programs_in
from infloop.runtime.timeline import DirectoryWork
from infloop.workspace.applying import rollback
from infloop.workspace.applying.selection import TreePair, Worked, select
from infloop.workspace.git.commands import Git
from infloop.workspace.git.repository_paths import Discovery, GitPaths, git_paths, work_tree
from infloop.workspace.git.user_settings import UserSettings
from infloop.workspace.planted_files import rename_untrusted
from infloop.workspace.repositories.mirrors import Mirrors
from infloop.workspace.snapshots.stat_cache import changed_files
from infloop.workspace.threads import in_thread
from infloop.workspace.worktrees.records import RUN_CHECKOUT
from infloop.workspace.worktrees.worktree import Worktrees, empty_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from infloop.engine.commands import Perform
    from infloop.model.events import Event
    from infloop.nodes.base import WorktreeOptions
    from infloop.runtime.timeline import DirectoryState, WorkspaceHistory
    from infloop.sandbox.base import Sandbox
    from infloop.workspace.applying.selection import Selection, Wanted
    from infloop.workspace.git.program import Confine
    from infloop.workspace.git.remote import Credentials
    from infloop.workspace.snapshots.changes import Change
    from infloop.workspace.snapshots.restore_plan import ScannedTree
    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.snapshots.trees import LineCounts
    from infloop.workspace.worktrees.records import Saved
    from infloop.workspace.worktrees.worktree import Worktree, WorktreeInfo

    Post = Callable[[Event], None]
    CheckRun = Callable[[str], Awaitable[bool]]

DAY_MS = 86_400_000
MIRROR_DAYS = 30
"""A mirror of a repository that no run used for so long is removed."""
MAX_COUNTED_FILES = 2_000
"""Changed lines are counted only up to this many changed files."""


class OwnCheckout(Protocol):
    """The checkout of a run whose workspace is a repository; see `infloop.runtime.checkouts`."""

    epoch: int

    async def enter(self, post: Post) -> Worktree:
        """Return the checkout; make it if necessary."""

    def is_here(self) -> bool:
        """Say whether this machine has the checkout in which the run worked last."""

    async def store_snapshot(self, snapshot: str, post: Post) -> bool:
        """Store a snapshot for other machines; say whether it is stored."""

    async def store_last_state(self, post: Post) -> bool:
        """Store the state at the end of the run; say whether the checkout can be removed."""


class Workspaces:
    """The worktrees and snapshots of a data directory; created when they are first needed."""

    def __init__(
        self,
        data_dir: Path,
        sandbox: Sandbox,
        homes: Sequence[Path],
        *,
        snapshots: bool,
        confine: Confine | None = None,
        user: tuple[int, int] | None = None,
        shortage: Callable[[], str] = str,
        git_environment: Mapping[str, str] | None = None,
        repositories: tuple[str, ...] = (),
        credentials: Credentials | None = None,
    ) -> None:
        """Run infloop's own git in `sandbox`, which must be at level `host`.

        `homes` are those of the users that infloop and its children run as, ours first. With
        `confine`, worktrees are private clones, for children that run as `user`. `shortage` returns
        why nothing can be saved, or an empty text. `git_environment` are the variables that say
        where the user's git settings are. `repositories` are the beginnings of addresses from which
        workspaces are fetched, with `credentials`.
        """
        self.trees = Worktrees(data_dir, programs_in(sandbox), confine=confine, user=user)
        self.data_dir = data_dir.resolve()
        self.mirrors = Mirrors(
            self.data_dir / "repositories",
            Git(limited_in(sandbox)),
            allowed=repositories,
            credentials=credentials,
            group=user[1] if user else None,
        )
        self.known_repositories = KnownRepositories()
        self.snapshots = snapshots
        self.shortage = shortage
        self.homes = frozenset(str(home.resolve()) for home in homes)
        owners = frozenset((os.geteuid(), *(user or ())[:1]))
        self.discovery = Discovery(owners, self.homes)
        environment = git_environment or {"HOME": str(homes[0])}
        self.git_settings = UserSettings(self.store.git, environment)

    @property
    def store(self) -> SnapshotStore:
        """Where snapshots are stored."""
        return self.trees.store

    def close(self) -> None:
        """Release the worktrees of runs that did not end here: other processes may use them."""
        self.trees.close()

    def for_run(self, run_id: str, checkout: OwnCheckout | None = None) -> RunWorkspace:
        """Return the workspace of a run; with `checkout` if it works in a repository of its own."""
        return RunWorkspace(self, run_id, checkout)

    def listed(self, run_id: str) -> list[WorktreeInfo]:
        """Return the latest worktree of each node of a run, in the order of their creation."""
        latest = {each.node: each for each in self.trees.list_all() if each.run_id == run_id}
        return list(latest.values())

    async def saved(self, worktree: WorktreeInfo) -> Saved | None:
        """Return the saved state of a worktree, saving it if its process died; None while in use.

        A worktree that was never ready has no state.
        """
        if worktree.status == "in use" or worktree.base is None:
            return None
        return await self.trees.save(worktree.name)

    async def results(
        self,
        run_id: str,
        found: Sequence[DirectoryWork],
        wanted: Wanted,
        *,
        whole: bool,
        history: WorkspaceHistory | None = None,
    ) -> dict[str, Selection]:
        """Return the result in each directory that is known, of a `whole` run or a part of it.

        Of a whole run, the result in a worktree is what can be applied. `history` is that of the
        run's own checkout, if it has one.
        """
        worktrees = {each.path: each for each in self.listed(run_id) if each.node != RUN_CHECKOUT}
        by_directory = {each.directory: each for each in found}
        if whole:
            unseen = {path: DirectoryWork(path, complete=False) for path in worktrees}
            by_directory = {**unseen, **by_directory}
        selections: dict[str, Selection] = {}
        for directory, work in by_directory.items():
            worktree = worktrees.get(directory)
            if directory == WORKSPACE and history:
                worked = await self._worked_in_checkout(work, history, whole=whole)
            else:
                worked = await self._worked(work, worktree, whole=whole)
            if worked:
                selections[directory] = await select(self.store, worked, wanted)
        return selections

    async def _worked(
        self, work: DirectoryWork, worktree: WorktreeInfo | None, *, whole: bool
    ) -> Worked | None:
        """Return what is known of a directory; None if nothing has happened there yet."""
        first, last = work.first, work.last
        if worktree and whole:
            saved = await self.saved(worktree)
            first, last = worktree.base or first, saved.final if saved else last
        if not first or not last:
            return None
        ignored = await self.trees.ignored(worktree.name) if worktree else ()
        return await self._between(first, last, work, ignored)

    async def _worked_in_checkout(
        self, work: DirectoryWork, history: WorkspaceHistory, *, whole: bool
    ) -> Worked | None:
        """Return what is known of a run's own checkout; None if nothing has happened there yet."""
        stored = history.stored
        last = stored.snapshot if stored and whole else work.last
        if not work.first or not last:
            return None
        return await self._between(work.first, last, work, stored.ignored if stored else ())

    async def _between(
        self, first: str, last: str, work: DirectoryWork, ignored: tuple[str, ...]
    ) -> Worked:
        if not work.complete:
            return Worked(first, last, None, ignored)
        end = (await self.store.stored_tree(last)).files
        cut_off = (TreePair(before, end) for before in work.cut_off)
        return Worked(first, last, (*work.steps, *cut_off), ignored)

    def why_not(self, root: Path) -> str:
        """Return why no snapshots are taken of a directory, or an empty text."""
        if why := why_too_wide(str(root), self.homes):
            return f"it is {why}"
        return self.shortage()

    async def named_files(self, directory: str) -> dict[str, str]:
        """Return the paths below a directory that the user's git settings name, with the reason.

        For a worktree these are the paths below the repository that it belongs to. Raises StepError
        if the settings cannot be read.
        """
        if directory == WORKSPACE:  # of no user's repository
            return {}
        top = self._work_tree(directory)
        named = await self.git_settings.named_files(top)
        return {
            str(path.relative_to(top)): why
            for path, why in named.items()
            if path != top and path.is_relative_to(top)
        }

    async def recover(self, is_over: CheckRun) -> list[str]:
        """Save and remove the worktrees of dead processes; return messages for the user.

        Worktrees of runs that are not over stay, because the runs can be resumed.
        """
        messages = [
            f"took back what was half applied to {root}" for root in await _rolled_back(self)
        ]
        orphans = {each.run_id for each in self.trees.list_all() if each.status == "orphaned"}
        for run_id in sorted(orphans):
            if not await is_over(run_id):
                continue
            try:
                saved = await self.trees.prune([run_id])
            except (InfloopError, OSError) as error:
                messages.append(f"a worktree of run {run_id} could not be saved and stays: {error}")
            else:
                messages += [f"saved the worktree {each.name} of run {run_id}" for each in saved]
                messages += [f"{each.name}: {each.problem}" for each in saved if each.problem]
        await self.mirrors.remove_unused(self.trees.borrowed(), MIRROR_DAYS * DAY_MS / 1000)
        return messages

    async def drop_snapshots(self, is_known: CheckRun) -> int:
        """Drop the snapshots of runs that were pruned; return the number of those runs."""
        gone = [run_id for run_id in self.store.owners() if not await is_known(run_id)]
        if gone:
            await self.store.prune((), gone)
            self._dropped.touch()
        return len(gone)

    def dropped_lately(self) -> bool:
        """Say whether snapshots were dropped within the last day: it is slow."""
        try:
            last_ms = self._dropped.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return False
        return self.store.now_ms() - last_ms < DAY_MS

    @property
    def _dropped(self) -> Path:
        return self.store.directory / "dropped"

    async def write_out(self, snapshot: str, path: Path) -> None:
        """Write a snapshot to a path that does not exist yet."""
        await self.store.stored_tree(snapshot)  # fails before anything is created
        await self.store.restore(_created(empty_path(path)), snapshot)

    async def restore_worktree(self, saved: Saved, path: Path) -> list[str]:
        """Create a saved worktree again for a person; return the files that got another name.

        These are files that the agent changed and that the person's git settings name: git would
        execute them there.
        """
        path = await self.trees.restore(saved, path)
        named = await self.named_files(str(path))
        base, final = [await self.store.stored_tree(each) for each in (saved.base, saved.final)]
        changed = await self.store.trees.leaves(base.files, final.files)
        unsafe = [
            each.path
            for each in changed
            if each.new and named_reason(os.fsdecode(each.path), named)
        ]
        return await in_thread(lambda _: rename_untrusted(path, unsafe))

    # -- restoring -----------------------------------------------------------------------------

    async def restore_changes(self, state: DirectoryState) -> list[Change] | None:
        """Return what a restore changes in a directory; None if the directory is created again.

        A worktree is always created again, because its current files are saved.
        """
        if state.directory == WORKSPACE:
            return None  # every run has a checkout of its own
        if self.is_worktree(state.directory) or not _exists(state.directory):
            return None
        return await self.store.plan_restore(Path(state.directory), state.snapshot)

    async def prepare_restore(
        self, run_id: str, step: str, state: DirectoryState
    ) -> TreeRestored | None:
        """Save for a run what a restore replaces; None when there is nothing to restore."""
        replaced = ""
        if state.directory == WORKSPACE:
            return TreeRestored(step, state.directory, state.snapshot, replaced, state.head)
        if not self.is_worktree(state.directory) and _exists(state.directory):
            async with self.store.lock_root(Path(state.directory)) as root:
                replaced = (await self.store.read(root, owner=run_id)).stored.id
        if replaced == state.snapshot:
            return None
        return TreeRestored(step, state.directory, state.snapshot, replaced, state.head)

    async def restore(self, run_id: str, event: TreeRestored) -> None:
        """Restore a directory; after an interruption, a second call finishes it."""
        if event.directory == WORKSPACE:
            return  # the run's checkout begins with the newest snapshot in the journal
        worktrees = self._worktrees_at(event.directory)
        own = next((each for each in worktrees if each.run_id == run_id), None)
        again = own and await self.trees.reopen(run_id, own.node)
        if again:
            await self.trees.rewind(again, event.snapshot)
        elif worktrees:
            await self._recreate_worktree(run_id, event)
        else:
            await self.store.restore(_created(Path(event.directory)), event.snapshot)

    async def _recreate_worktree(self, run_id: str, event: TreeRestored) -> None:
        """Create a saved worktree of another run again, for this run."""
        for each in self._worktrees_at(event.directory):
            if each.status == "orphaned":
                await self.trees.prune([each.run_id])
        saved = [each.saved for each in self._worktrees_at(event.directory) if each.saved]
        if not saved:
            raise UsageError(f"the worktree {event.directory!r} is in use: wait until it is not")
        await self.trees.recreate_for_run(saved[-1], run_id, event.snapshot, event.head)

    def is_worktree(self, directory: str) -> bool:
        """Say whether a directory is, or was, a worktree."""
        return bool(self._worktrees_at(directory))

    def _work_tree(self, directory: str) -> Path:
        """Return the user's directory that a worktree was made from; others are their own."""
        worktrees = self._worktrees_at(directory)
        return Path(worktrees[-1].repository if worktrees else directory).resolve()

    def _worktrees_at(self, directory: str) -> list[WorktreeInfo]:
        """Return the worktrees that are, or were, at a path, oldest first."""
        return [each for each in self.trees.list_all() if each.path == directory]


async def _rolled_back(shared: Workspaces) -> list[Path]:
    with suppress(InfloopError):  # it stays pending, and the next apply takes it back first
        return await rollback.recover(shared.store)
    return []


class RunWorkspace:
    """The worktrees and the directories with snapshots of one run."""

    def __init__(
        self, shared: Workspaces, run_id: str, checkout: OwnCheckout | None = None
    ) -> None:
        self.shared = shared
        self.run_id = run_id
        self.checkout = checkout
        self._open: dict[str, Worktree] = {}
        self._roots: dict[str, Path | None] = {}

    def for_step(self, perform: Perform, post: Post) -> StepWorkspace:
        """Return the workspace of a step; `post` adds events to the run."""
        return StepWorkspace(self, perform, post)

    async def enter(self, post: Post) -> str:
        """Return the path of the run's own checkout; make it if necessary."""
        assert self.checkout
        found = self._open[RUN_CHECKOUT] = await self.checkout.enter(post)
        return str(found.path)

    async def reopen(self) -> None:
        """Reopen the worktrees that the run had open in another process.

        Those of a run that went on elsewhere are out of date.
        """
        if self.checkout and not self.checkout.is_here():
            return
        for each in self.shared.listed(self.run_id):
            if each.node == RUN_CHECKOUT:
                continue  # a step that needs it enters it
            found = await self.shared.trees.reopen(self.run_id, each.node)
            if found is not None:
                self._open[each.node] = found

    async def worktree(self, node: str, cwd: str, options: WorktreeOptions) -> Path:
        """Return the directory for `cwd` in a node's worktree; create the worktree if necessary."""
        found = self._open.get(node)
        if found is None:
            found = self._open[node] = await self.shared.trees.create(
                Path(cwd),
                self.run_id,
                node,
                ref=options.ref or None,
                include_uncommitted=options.include_uncommitted,
                include=options.include,
            )
            return found.cwd
        if options.ref != found.ref:
            raise StepError(
                f"the worktree of {node!r} was created at {found.ref or 'HEAD'!r} and cannot be "
                f"created again at {options.ref or 'HEAD'!r}: a node has one worktree in a run"
            )
        return _inside(found, cwd)

    async def close(self, post: Post) -> None:
        """Save and remove all worktrees. One that cannot be saved stays, and the run says so."""
        stored = self.checkout is None or await self.checkout.store_last_state(post)
        for each in list(self._open.values()):
            if each.node == RUN_CHECKOUT and not stored:
                message = f"the checkout {str(each.path)!r} stays: its files are not stored"
                post(Notice(message, level="warning"))
                continue
            try:
                if reason := self.shared.shortage():
                    raise StoreError(reason)
                saved = await self.shared.trees.remove(each)
            except (InfloopError, OSError) as error:
                message = (
                    f"the worktree {str(each.path)!r} could not be saved and so it stays: {error}. "
                    "`infloop worktrees prune` tries again"
                )
                post(Notice(message, node=each.node, level="warning"))
            else:
                del self._open[each.node]
                if each.node == RUN_CHECKOUT and saved.is_plain:
                    await self.shared.trees.forget(each.name)  # the store has all of it
                if saved.problem:
                    message = f"of the worktree {each.name!r}, {saved.problem}"
                    post(Notice(message, node=each.node, level="warning"))

    async def take_snapshot(self, directory: str, post: Post) -> tuple[Path, ScannedTree] | None:
        """Take a snapshot of the tree that contains a directory; None if that is not possible."""
        known = self._roots.get(directory, Path())
        if known is None:
            return None
        refused = ""
        for root in self._candidates(directory) if known == Path() else (known,):
            refused = self.shared.why_not(root)
            try:
                if not refused:
                    read = await self.shared.store.take_for_owner(root, self.run_id)
                    self._roots[directory] = root
                    return root, read
            except (InfloopError, OSError) as error:
                refused = str(error)
        self._roots[directory] = None
        post(Notice(_no_snapshots(directory, refused), level="warning"))
        return None

    def _candidates(self, directory: str) -> tuple[Path, ...]:
        """Return what to take a snapshot of: the git work tree around a directory, else itself."""
        path = Path(directory).resolve()
        top = work_tree(path, self.shared.discovery)
        return (path,) if top is None or top == path else (top, path)

    def git_protection(self, sandbox: Sandbox) -> GitProtection:
        return GitProtection(
            self._git_paths,
            self.shared.data_dir,
            own_mounts=sandbox.own_mounts,
            named_files=self.shared.git_settings.named_files,
            known=self.shared.known_repositories,
        )

    def _git_paths(self, cwd: str) -> GitPaths:
        """Return the paths of the repository around a directory that a child there may use."""
        path = Path(cwd).resolve()
        for each in self._open.values():
            if each.objects and path.is_relative_to(each.path):
                return GitPaths((str(each.path),), (str(each.objects),), is_private=True)
        return git_paths(cwd, self.shared.discovery)

    async def store_snapshot(self, root: Path, snapshot: str, post: Post) -> None:
        """Store a snapshot of the run's checkout or worktrees for other machines."""
        if self.checkout and any(each.path == root for each in self._open.values()):
            await self.checkout.store_snapshot(snapshot, post)

    def directory_name(self, root: Path) -> str:
        """Return the directory as events name it: a checkout has another path on each machine."""
        own = self._open.get(RUN_CHECKOUT)
        return WORKSPACE if own and own.path == root else str(root)

    async def head(self, root: Path) -> str:
        """Return the commit that is checked out at `root`; empty if it is no worktree."""
        own = next((each for each in self._open.values() if each.path == root), None)
        return await self.shared.trees.head(own) if own else ""


def _exists(directory: str) -> bool:
    return Path(directory).is_dir()


def _created(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _inside(worktree: Worktree, cwd: str) -> Path:
    """Return the directory in a worktree that corresponds to one in the user's repository."""
    resolved = Path(cwd).resolve()
    if not resolved.is_relative_to(worktree.repository):
        raise StepError(
            f"the worktree of {worktree.node!r} is of {str(worktree.repository)!r}, and {cwd!r} is "
            "not in it: a node has one worktree in a run"
        )
    inside = worktree.path / resolved.relative_to(worktree.repository)
    if not inside.is_dir():
        raise StepError(f"the worktree of {worktree.node!r} has no {str(inside)!r} any more")
    return inside


def _no_snapshots(directory: str, reason: str) -> str:
    return (
        f"no snapshots are taken of {directory!r}: {reason}. So `infloop diff` and `infloop "
        "rewind` know nothing of the files that steps change there; use a worktree (useWorktree) "
        "or a directory of its own, or INFLOOP_SNAPSHOTS=off to take none at all"
    )


def _worktree_name(node: str, name: str) -> str:
    """Return the name of a worktree; inside a called workflow it is one of that call."""
    around = node.rpartition("/")[0]
    return f"{around}/{name}" if name and around else name or node


class StepWorkspace:
    """The workspace of one step; see `infloop.nodes.base.Workspace`."""

    def __init__(self, run: RunWorkspace, perform: Perform, post: Post) -> None:
        self._run = run
        self._perform = perform
        self._post = post

    async def worktree(self, cwd: str, options: WorktreeOptions) -> str:
        """Return the directory for `cwd` in the node's worktree, or raise StepError."""
        try:
            name = _worktree_name(self._perform.node, options.name)
            return str(await self._run.worktree(name, cwd, options))
        except StepError:
            raise
        except (InfloopError, OSError) as error:
            raise StepError(f"no worktree could be made of {cwd!r}: {error}") from None

    @asynccontextmanager
    async def snapshots(self, directory: str) -> AsyncIterator[TakenSnapshots]:
        """Take a snapshot of the tree of a directory before and after the block."""
        taken = TakenSnapshots()
        if not self._run.shared.snapshots:
            yield taken
            return
        before = await self._run.take_snapshot(directory, self._post)
        if before is None:
            yield taken
            return
        root, read = before
        self._post(await self._saved(root, read))
        try:
            yield taken
        finally:
            after = await self._run.take_snapshot(directory, self._post)
            if after is not None:
                taken.tree = after[1].stored.files
                self._post(await self._saved(root, after[1], since=read))

    async def _saved(
        self, root: Path, read: ScannedTree, since: ScannedTree | None = None
    ) -> TreeSaved:
        """Return the event for a snapshot; after the step, with what changed `since` before it."""
        files = changed_files(since.folder, read.folder) if since else 0
        lines: list[LineCounts] = []
        if since and 0 < files <= MAX_COUNTED_FILES:
            with suppress(InfloopError):  # without git, lines are not counted
                trees = self._run.shared.store.trees
                lines += (await trees.lines(since.stored.files, read.stored.files)).values()
        await self._run.store_snapshot(root, read.stored.id, self._post)
        return TreeSaved(
            path=self._perform.path,
            node=self._perform.node,
            attempt=self._perform.attempt,
            when="after" if since else "before",
            directory=self._run.directory_name(root),
            snapshot=read.stored.id,
            tree=read.stored.files,
            files=files,
            insertions=sum(each.insertions for each in lines),
            deletions=sum(each.deletions for each in lines),
            head=await self._run.head(root),
        )
