"""What runs need of the workspace: a worktree for a node, and every step's directory kept.

`Workspaces` is one for a process, `RunWorkspace` one for a run, `StepWorkspace` what a step is
given. A node has one worktree in a run: the rounds of a loop share it, and a run that goes on in
another process goes on in it. At the end of the run it is saved and removed. A process that dies
leaves it behind; `Workspaces.recover` saves it then.

A directory is kept before and after each step that may change it. What cannot be kept (too large,
a home directory) is said once in the run, which goes on without.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import InfloopError, StepError, StoreError, UsageError
from infloop.model.events import Notice, TreeRestored, TreeSaved
from infloop.nodes.base import TakenSnapshots
from infloop.runtime.confinement.git_protection import InPlace
from infloop.runtime.confinement.programs import programs_in
from infloop.workspace.applying import rollback
from infloop.workspace.git.repository_paths import GitPaths, git_paths
from infloop.workspace.snapshots.stat_cache import changed_files
from infloop.workspace.worktrees.worktree import Worktrees, empty_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from infloop.engine.commands import Perform
    from infloop.model.events import Event
    from infloop.nodes.base import WorktreeOptions
    from infloop.runtime.timeline import Moment
    from infloop.sandbox.base import Sandbox
    from infloop.workspace.git.program import Confine
    from infloop.workspace.snapshots.changes import Change
    from infloop.workspace.snapshots.restore_plan import ScannedTree
    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.snapshots.trees import LineCounts
    from infloop.workspace.worktrees.worktree import Worktree, WorktreeInfo

    Post = Callable[[Event], None]
    Asked = Callable[[str], Awaitable[bool]]

DAY_MS = 86_400_000
MOST_COUNTED = 2_000
"""Of how many changed files the lines are counted."""


class Workspaces:
    """The worktrees and snapshots of a data directory; nothing is made before it is needed."""

    def __init__(
        self,
        data_dir: Path,
        sandbox: Sandbox,
        home: Path,
        *,
        snapshots: bool,
        confine: Confine | None = None,
        user: tuple[int, int] | None = None,
        shortage: Callable[[], str] = str,
    ) -> None:
        """Run our own git in `sandbox`, which confines nothing.

        With `confine` worktrees are private clones, for children that run as `user`. While there is
        a `shortage` of room for what is kept, nothing more is.
        """
        self.trees = Worktrees(data_dir, programs_in(sandbox), confine=confine, user=user)
        self.data_dir = data_dir.resolve()
        self.snapshots = snapshots
        self.shortage = shortage
        self._home = home.resolve()

    @property
    def store(self) -> SnapshotStore:
        """Where snapshots are kept."""
        return self.trees.store

    def close(self) -> None:
        """Let go of the worktrees of runs that did not end here: others may go on in them."""
        self.trees.close()

    def of_run(self, run_id: str) -> RunWorkspace:
        """Return what a run is given."""
        return RunWorkspace(self, run_id)

    def listed(self, run_id: str) -> list[WorktreeInfo]:
        """Return the worktrees of a run, the latest of each node, in the order they were made."""
        latest = {each.node: each for each in self.trees.list_all() if each.run_id == run_id}
        return list(latest.values())

    def why_not(self, root: Path) -> str:
        """Return why a directory is not kept, or nothing."""
        if root == self._home or root in self._home.parents:
            return f"it is {'your home directory' if root == self._home else 'above your home'}"
        return self.shortage()

    async def recover(self, is_over: Asked) -> list[str]:
        """Save what processes that died have left; return what a person should know of it.

        Worktrees of runs that are not over stay: they go on in them.
        """
        said = [f"took back what was half applied to {root}" for root in await _rolled_back(self)]
        orphans = {each.run_id for each in self.trees.list_all() if each.status == "orphaned"}
        for run_id in sorted(orphans):
            if not await is_over(run_id):
                continue
            try:
                saved = await self.trees.prune([run_id])
            except (InfloopError, OSError) as error:
                said.append(f"a worktree of run {run_id} could not be saved and stays: {error}")
            else:
                said += [f"saved the worktree {each.name} of run {run_id}" for each in saved]
                said += [f"{each.name}: {each.problem}" for each in saved if each.problem]
        return said

    async def drop_forgotten(self, is_known: Asked) -> int:
        """Drop the snapshots of runs that are forgotten; return of how many runs."""
        gone = [run_id for run_id in self.store.owners() if not await is_known(run_id)]
        if gone:
            await self.store.prune((), gone)
            self._dropped.touch()
        return len(gone)

    def dropped_lately(self) -> bool:
        """Say whether that was done within the last day: it takes a while."""
        try:
            last_ms = self._dropped.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return False
        return self.store.now_ms() - last_ms < DAY_MS

    @property
    def _dropped(self) -> Path:
        return self.store.directory / "dropped"

    async def write_out(self, snapshot: str, path: Path) -> None:
        """Write a snapshot to a path where there is nothing."""
        await self.store.stored_tree(snapshot)  # before anything is made for one that there is not
        await self.store.restore(_made(empty_path(path)), snapshot)

    # -- going back ----------------------------------------------------------------------------

    async def changes(self, moment: Moment) -> list[Change] | None:
        """Return what going back would change in a directory; None if it has to be made again.

        A worktree always has: what was done in it since is saved.
        """
        if self.is_worktree(moment.directory) or not _is_there(moment.directory):
            return None
        return await self.store.plan_restore(Path(moment.directory), moment.snapshot)

    async def prepare(self, run_id: str, step: str, moment: Moment) -> TreeRestored | None:
        """Keep for a run what going back would replace; None when there is nothing to do."""
        replaced = ""
        if not self.is_worktree(moment.directory) and _is_there(moment.directory):
            async with self.store.lock_root(Path(moment.directory)) as place:
                replaced = (await self.store.read(place, owner=run_id)).stored.id
        if replaced == moment.snapshot:
            return None
        return TreeRestored(step, moment.directory, moment.snapshot, replaced, moment.head)

    async def restore(self, run_id: str, event: TreeRestored) -> None:
        """Make a directory what it was; done again after an interruption, it is finished."""
        worktrees = self._worktrees_at(event.directory)
        own = next((each for each in worktrees if each.run_id == run_id), None)
        again = own and await self.trees.reopen(run_id, own.node)
        if again:
            await self.trees.rewind(again, event.snapshot)
        elif worktrees:
            await self._take_up(run_id, event)
        else:
            await self.store.restore(_made(Path(event.directory)), event.snapshot)

    async def _take_up(self, run_id: str, event: TreeRestored) -> None:
        """Make a worktree of another run again, for this one."""
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

    def _worktrees_at(self, directory: str) -> list[WorktreeInfo]:
        """Return the worktrees that are, or were, at a path, the oldest first."""
        return [each for each in self.trees.list_all() if each.path == directory]


async def _rolled_back(shared: Workspaces) -> list[Path]:
    with suppress(InfloopError):  # it stays noted, and is taken back before the next apply
        return await rollback.recover(shared.store)
    return []


class RunWorkspace:
    """The worktrees and watched directories of one run."""

    def __init__(self, shared: Workspaces, run_id: str) -> None:
        self.shared = shared
        self.run_id = run_id
        self._open: dict[str, Worktree] = {}
        self._roots: dict[str, Path | None] = {}

    def step(self, perform: Perform, post: Post) -> StepWorkspace:
        """Return what a step is given; `post` records events of the run."""
        return StepWorkspace(self, perform, post)

    async def reopen(self) -> None:
        """Open again what the run had open in another process."""
        for each in self.shared.listed(self.run_id):
            found = await self.shared.trees.reopen(self.run_id, each.node)
            if found is not None:
                self._open[each.node] = found

    async def worktree(self, node: str, cwd: str, beginning: WorktreeOptions) -> Path:
        """Return the directory that stands for `cwd` in a node's worktree; make one if need be."""
        found = self._open.get(node)
        if found is None:
            found = self._open[node] = await self.shared.trees.create(
                Path(cwd),
                self.run_id,
                node,
                ref=beginning.ref or None,
                include_uncommitted=beginning.include_uncommitted,
                include=beginning.include,
            )
            return found.cwd
        if beginning.ref != found.ref:
            raise StepError(
                f"the worktree of {node!r} began at {found.ref or 'HEAD'!r} and cannot begin again "
                f"at {beginning.ref or 'HEAD'!r}: a node has one worktree in a run"
            )
        return _inside(found, cwd)

    async def close(self, post: Post) -> None:
        """Save and remove all worktrees; one that cannot be saved stays, and the run says so."""
        for each in list(self._open.values()):
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
                if saved.problem:
                    message = f"of the worktree {each.name!r}, {saved.problem}"
                    post(Notice(message, node=each.node, level="warning"))

    async def look(self, directory: str, post: Post) -> tuple[Path, ScannedTree] | None:
        """Keep the tree that a directory belongs to; None when that cannot be."""
        known = self._roots.get(directory, Path())
        if known is None:
            return None
        refused = ""
        for root in _candidates(directory) if known == Path() else (known,):
            refused = self.shared.why_not(root)
            try:
                if not refused:
                    read = await self.shared.store.take_for_owner(root, self.run_id)
                    self._roots[directory] = root
                    return root, read
            except (InfloopError, OSError) as error:
                refused = str(error)
        self._roots[directory] = None
        post(Notice(_not_kept(directory, refused), level="warning"))
        return None

    def in_place(self, sandbox: Sandbox) -> InPlace:
        """Return what looks after the directories that its children work in."""
        return InPlace(self._places, self.shared.data_dir, own_mounts=sandbox.own_mounts)

    def _places(self, cwd: str) -> GitPaths:
        """Return what a child in a directory may reach of the repository around it."""
        path = Path(cwd).resolve()
        for each in self._open.values():
            if each.objects and path.is_relative_to(each.path):
                return GitPaths((str(each.path),), (str(each.objects),), is_private=True)
        return git_paths(cwd)

    async def head(self, root: Path) -> str:
        """Return what is checked out at a root, if it is one of the run's worktrees."""
        own = next((each for each in self._open.values() if each.path == root), None)
        return await self.shared.trees.head(own) if own else ""


def _is_there(directory: str) -> bool:
    return Path(directory).is_dir()


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _inside(worktree: Worktree, cwd: str) -> Path:
    """Return the directory in a worktree that stands for one of the user's."""
    asked = Path(cwd).resolve()
    if not asked.is_relative_to(worktree.repository):
        raise StepError(
            f"the worktree of {worktree.node!r} is of {str(worktree.repository)!r}, and {cwd!r} is "
            "not in it: a node has one worktree in a run"
        )
    inside = worktree.path / asked.relative_to(worktree.repository)
    if not inside.is_dir():
        raise StepError(f"the worktree of {worktree.node!r} has no {str(inside)!r} any more")
    return inside


def _candidates(directory: str) -> tuple[Path, ...]:
    """Return what may be kept for a directory: the whole git work tree it is in, or else itself."""
    path = Path(directory).resolve()
    work_tree = next((each for each in (path, *path.parents) if (each / ".git").exists()), path)
    return (work_tree,) if work_tree == path else (work_tree, path)


def _not_kept(directory: str, reason: str) -> str:
    return (
        f"no snapshots are taken of {directory!r}: {reason}. So `infloop diff` and `infloop "
        "rewind` know nothing of the files that steps change there; use a worktree (useWorktree) "
        "or a directory of its own, or INFLOOP_SNAPSHOTS=off to take none at all"
    )


class StepWorkspace:
    """What one step is given of its run's workspace; see `infloop.nodes.base.Workspace`."""

    def __init__(self, run: RunWorkspace, perform: Perform, post: Post) -> None:
        self._run = run
        self._perform = perform
        self._post = post

    async def worktree(self, cwd: str, options: WorktreeOptions) -> str:
        """Return the directory that stands for `cwd` in the node's worktree, or raise StepError."""
        try:
            return str(await self._run.worktree(self._perform.node, cwd, options))
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
        before = await self._run.look(directory, self._post)
        if before is None:
            yield taken
            return
        root, read = before
        self._post(await self._saved(root, read))
        try:
            yield taken
        finally:
            after = await self._run.look(directory, self._post)
            if after is not None:
                taken.tree = after[1].stored.files
                self._post(await self._saved(root, after[1], since=read))

    async def _saved(
        self, root: Path, read: ScannedTree, since: ScannedTree | None = None
    ) -> TreeSaved:
        """Return the event that says so; after the step, with what changed since before it."""
        files = changed_files(since.folder, read.folder) if since else 0
        lines: list[LineCounts] = []
        if since and 0 < files <= MOST_COUNTED:
            with suppress(InfloopError):  # where there is no git, nobody counts
                trees = self._run.shared.store.trees
                lines += (await trees.lines(since.stored.files, read.stored.files)).values()
        return TreeSaved(
            self._perform.path,
            self._perform.node,
            self._perform.attempt,
            "after" if since else "before",
            str(root),
            read.stored.id,
            read.stored.files,
            files,
            sum(each.insertions for each in lines),
            sum(each.deletions for each in lines),
            await self._run.head(root),
        )
