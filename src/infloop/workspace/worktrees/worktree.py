"""Creates, saves, removes and restores worktrees: one directory for each agent.

- A worktree is a git worktree of the user's repository (`linked`) or, for confined agents, a
  private clone (`clone`). It is in our data directory.
- Its files are written by a git without filters, exactly as they are in the commit.
- The worktree's own `.git` is read only by a confined git: an agent may have changed it.
- A worktree is saved before it is removed: files in a snapshot, nested repositories in others,
  files over the size limit in a directory, commits under our refs in the user's repository.
- A worktree whose process died is found by its record and saved too.
- A removed worktree can be created again at the same path, for its own run or for another run that
  continues it. Paths that steps have recorded stay valid.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from infloop.errors import StepError, UsageError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.lowlevel.lock_file import LockFile, is_held, remove_if_free
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.workspace import beneath
from infloop.workspace.snapshots.store import SnapshotStore
from infloop.workspace.threads import in_thread
from infloop.workspace.worktrees import checkout, repository, saving, uncommitted
from infloop.workspace.worktrees.clone import CloneKind
from infloop.workspace.worktrees.linked import LinkedKind
from infloop.workspace.worktrees.naming import new_name
from infloop.workspace.worktrees.records import RUN_CHECKOUT, Record, Records, Saved
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from infloop.workspace.git.program import Confine, RunProgram
    from infloop.workspace.worktrees.kinds import WorktreeKind
    from infloop.workspace.worktrees.records import KindName

Status: TypeAlias = Literal["in use", "orphaned", "saved"]


class Worktree(msgspec.Struct, frozen=True):
    """A worktree that is ready for work.

    - `path` is its root; `cwd` is the directory in it that corresponds to the user's own directory.
    - `repository` is the root of the user's tree.
    - `commit` is its start commit; `ref` is the ref that was requested as its start.
    - `base` is its snapshot at creation.
    - `admin` is its git directory; `objects` is the object directory that a clone borrows.
    """

    name: str
    run_id: str
    node: str
    path: Path
    cwd: Path
    repository: Path
    commit: str
    base: str
    ref: str = ""
    admin: Path | None = None
    objects: Path | None = None


class WorktreeInfo(msgspec.Struct, frozen=True):
    """A worktree in a listing: whether its process is alive, and its saved state.

    `base` is its snapshot at creation; None until it has one.
    """

    name: str
    run_id: str
    node: str
    repository: str
    path: str
    status: Status
    created_at_ms: int
    base: str | None
    saved: Saved | None


class Worktrees:
    """All worktrees of a data directory; call `close` when none will be created any more."""

    def __init__(
        self,
        data_dir: Path,
        run: RunProgram,
        *,
        store: SnapshotStore | None = None,
        confine: Confine | None = None,
        user: tuple[int, int] | None = None,
    ) -> None:
        """Create git worktrees or, with `confine`, private clones.

        `user` is the (uid, gid) of confined children, if that is another user.
        """
        self.store = store or SnapshotStore(data_dir / "snapshots", run, exclude=(data_dir,))
        self._directory = data_dir / "worktrees"
        self._records = Records(self._directory)
        self._kinds: dict[KindName, WorktreeKind] = {
            "worktree": LinkedKind(),
            "clone": CloneKind(confine, user),
        }
        self._new_kind: KindName = "clone" if confine else "worktree"
        self._owner = secrets.token_hex(8)
        self._owner_lock: LockFile | None = None

    def close(self) -> None:
        """Give up the ownership of all worktrees; the remaining ones are then orphaned."""
        if self._owner_lock:
            self._owner_lock.release()
            self._owner_lock = None

    async def create(
        self,
        cwd: Path,
        run_id: str,
        node: str,
        *,
        ref: str | None = None,
        include_uncommitted: bool = False,
        include: Sequence[str] = (),
    ) -> Worktree:
        """Create a worktree of the repository that contains `cwd`.

        - It starts at `ref`, or at the checked-out commit.
        - With `include_uncommitted`, the user's changes are copied: edits, deletions and new files
          that are not ignored.
        - `include` are paths and patterns of files to copy even if git ignores them.
        """
        uncommitted.check_patterns(include)
        repo = await repository.find(self.store.git, cwd)
        commit = await _start_commit(repo, ref, include_uncommitted=include_uncommitted)
        record = replace(self._write_first_record(repo, cwd, run_id, node, commit), ref=ref or "")

        async def copy(path: Path) -> None:
            paths: list[bytes] = []
            if include_uncommitted:
                paths = await checkout.uncommitted_paths(self.store, repo, commit)
            await in_thread(
                lambda _: _copy_uncommitted(repo.root, Path(record.cwd), path, paths, include)
            )

        return await self._create(record, repo, copy)

    async def create_checkout(
        self, mirror: Repository, commit: str, run_id: str, ref: str
    ) -> Worktree:
        """Create the checkout of a run: a private clone of a mirror, whether confined or not.

        The mirror belongs to all runs, so none of them may work in it.
        """
        record = self._write_first_record(mirror, mirror.root, run_id, RUN_CHECKOUT, commit)
        return await self._create(replace(record, ref=ref), mirror, None)

    async def _create(
        self, record: Record, repo: Repository, copy: Callable[[Path], Awaitable[None]] | None
    ) -> Worktree:
        """Write the files of a worktree that has a first record; `copy` adds others."""
        kind, path = self._kinds[record.kind], Path(record.path)
        try:
            admin = await kind.create_git(repo, path, record.commit, ())
            record = replace(record, admin=str(admin))
            self._records.write(record)
            await checkout.check_out(self.store, repo, path, admin, record.commit)
            written = await checkout.written_files(self.store, repo, admin, record.commit)
            if copy:
                await copy(path)
            await in_thread(lambda _: kind.set_owner(path))
            base = await self.store.take(path, "worktree", any_size=True, written=written)
            self.store.pin(record.name, base.id)
            record = replace(record, stage="ready", base=base.id)
            self._records.write(record)
        except BaseException:
            # Nobody has worked in it yet, so nothing is lost.
            await run_uncancelled(self._discard(record))
            raise
        return _worktree(record)

    async def reopen(self, run_id: str, node: str) -> Worktree | None:
        """Return the worktree of a run and node, and take over its ownership.

        A worktree that was saved and removed is created again, at the same path with the same
        content.
        """
        async with self._lock():
            for record in reversed(self._records.all()):
                if (record.run_id, record.node) == (run_id, node) and record.stage != "creating":
                    return _worktree(await self._reopen(record))
        return None

    async def recreate_for_run(
        self, saved: Saved, run_id: str, snapshot: str, head: str | None = None
    ) -> Worktree:
        """Create a saved worktree again at the same path, for another run and from another moment.

        `snapshot` is one of its snapshots; `head` is the commit that was checked out then.
        """
        async with self._lock():
            before = self._record(saved.name)
            await self._clear_path(before)
            record = replace(
                before,
                name=new_name(run_id, before.node),
                run_id=run_id,
                owner=self._owner,
                created_at_ms=self.store.now_ms(),
                stage="creating",
                saved=None,
                kind=self._kind_of(before.node),
            )
            self._records.write(record)
            self.store.pin(record.name, saved.base, snapshot)
            wanted = replace(saved, final=snapshot, head=head or saved.head)
            try:
                return _worktree(await self._recreate(record, wanted))
            except BaseException:
                await run_uncancelled(self._discard(record))
                raise

    async def rewind(self, worktree: Worktree, snapshot: str) -> None:
        """Restore the files of a worktree from one of its snapshots."""
        kind = self._kinds[self._record(worktree).kind]
        await self.store.restore(_make_directory(worktree.path), snapshot)
        await in_thread(lambda _: kind.set_owner(worktree.path))

    async def head(self, worktree: Worktree) -> str:
        """Return the commit that a worktree has checked out, or an empty string."""
        record = self._record(worktree)
        if worktree.admin is None:
            return ""
        return await self._kinds[record.kind].head(self._repository(record), worktree.admin)

    async def save(self, worktree: Worktree | str) -> Saved:
        """Save the present state of a worktree, which stays in use."""
        record = self._record(worktree)
        if record.stage in ("removing", "removed") and record.saved:
            return record.saved
        if record.base is None:
            raise UsageError(
                f"the creation of worktree {record.name!r} did not finish: there is nothing to save"
            )
        saved = await saving.save(self.store, record, record.base, self._kinds[record.kind])
        self._records.write(replace(record, saved=saved))
        return saved

    async def remove(self, worktree: Worktree | str) -> Saved:
        """Save a worktree, then remove it; if saving fails it is not removed."""
        saved = await self.save(worktree)
        record = self._record(worktree)
        if record.stage == "ready":
            found = await saving.find_unsaved(self.store, record, saved)
            aside = self._directory / f"{record.name}.kept"
            saved = await in_thread(lambda _: saving.move_unsaved(saved, found, aside))
            record = replace(record, stage="removing", saved=saved)
            self._records.write(record)
        if record.stage == "removing":
            await self._delete(record)
            self._records.write(replace(record, stage="removed"))
        return saved

    def list_all(self) -> list[WorktreeInfo]:
        """Return all worktrees, including removed ones with a saved state."""
        return [_listed(record, self._status(record)) for record in self._records.all()]

    def borrowed(self) -> set[str]:
        """Return the repositories that worktrees on disk, or their saved commits, depend on."""
        return {
            each.common
            for each in self._records.all()
            if each.stage != "removed" or (each.saved and each.saved.refs)
        }

    async def ignored(self, name: str) -> tuple[str, ...]:
        """Return the paths in a worktree that git ignores, directories with a slash."""
        record = self._record(name)
        if record.stage in ("removing", "removed") and record.saved:
            return record.saved.ignored
        if not _is_folder(record.path) or not _is_folder(record.common):
            return ()
        repo = self._repository(record)
        return await checkout.ignored(self.store, repo, Path(record.path), record.commit)

    async def prune(self, run_ids: Collection[str] | None = None) -> list[Saved]:
        """Save and remove the worktrees whose process died, of all runs or of some."""
        done: list[Saved] = []
        async with self._lock():
            for record in self._records.all():
                chosen = run_ids is None or record.run_id in run_ids
                if not chosen or self._status(record) != "orphaned":
                    continue
                if record.stage == "creating":
                    await self._discard(record)
                else:
                    done.append(await self.remove(record.name))
            for path in (self._directory / "owners").glob("[!.]*"):
                remove_if_free(path)
        return done

    async def forget(self, name: str) -> None:
        """Delete the saved state of a removed worktree."""
        record = self._record(name)
        if record.stage != "removed" or record.saved is None:
            raise UsageError(
                f"worktree {name!r} is not removed yet: run `infloop worktrees prune` first"
            )
        repo = self._repository(record)
        for ref in record.saved.refs if _is_folder(record.common) else ():
            await repo.delete_ref(ref)
        await in_thread(lambda _: self._delete_files(f"{name}.kept"))
        self.store.unpin(name)
        self._records.delete(name)

    async def restore(self, saved: Saved, path: Path) -> Path:
        """Create a saved worktree again for a person, at an empty path; return the path.

        It is a worktree of the repository at its last commit, or a plain directory if the
        repository is gone. The repositories of submodules are not restored. Those that a confined
        agent left inside are renamed, because git would apply their settings.
        """
        path = empty_path(path)
        await self._write_saved(saved, path, "worktree", keep_git_names=saved.kind == "worktree")
        return path

    async def _write_saved(
        self, saved: Saved, path: Path, kind: KindName, *, keep_git_names: bool
    ) -> Path | None:
        """Write the saved state to `path`; return its git directory, if it has one."""
        repo = Repository(self.store.git, Path(saved.repository), Path(saved.common))
        head = await _existing_commit(repo, saved) if _is_folder(saved.common) else None
        admin = None
        if head:
            admin = await self._kinds[kind].create_git(repo, path, head, saved.refs)
            await checkout.check_out(self.store, repo, path, admin, head)
        await self.store.restore(_make_directory(path), saved.final)
        metadata = (await self.store.stored_tree(saved.final)).metadata
        for inside, snapshot in saved.repositories.items():
            if inside in metadata.repositories:
                name = inside if keep_git_names else f"{inside}.untrusted"
                await self.store.restore(_make_directory(path / name), snapshot)
        wanted = [each.path for each in metadata.skipped]
        if keep_git_names:
            wanted += metadata.repositories
        await in_thread(lambda _: _copy_kept_files(saved, path, wanted))
        return admin

    async def _reopen(self, record: Record) -> Record:
        """Take over an existing worktree, or create it again."""
        as_wanted = record.kind == self._kind_of(record.node)
        if record.stage == "ready" and _is_folder(record.path) and as_wanted:
            record = replace(record, owner=self._owner)
            self._records.write(record)
            return record
        saved = await self.remove(record.name)
        await self._clear_path(record)
        return await self._recreate(self._record(record.name), saved)

    async def _recreate(self, record: Record, saved: Saved) -> Record:
        """Write the saved state at the record's path; the caller holds the lock."""
        kind = self._kind_of(record.node)
        path = empty_path(Path(record.path))
        admin = await self._write_saved(saved, path, kind, keep_git_names=True)
        _make_directory(Path(record.cwd))
        await in_thread(lambda _: self._kinds[kind].set_owner(path))
        record = replace(
            record,
            stage="ready",
            owner=self._owner,
            admin=str(admin) if admin else None,
            kind=kind,
        )
        self._records.write(record)
        return record

    async def _clear_path(self, wanted: Record) -> None:
        """Save and remove what is at the path of a worktree that is to be created again."""
        others = [each for each in self._records.all() if each.path == wanted.path]
        for record in others:
            if record.stage == "removed":
                continue
            if self._status(record) == "in use":
                raise UsageError(
                    f"the worktree {wanted.path!r} is in use by run {record.run_id!r}: wait until "
                    "that has finished, or cancel it"
                )
            if record.stage == "creating":
                await self._discard(record)
            else:
                await self.remove(record.name)
        # A process died while it created this directory; its content is saved elsewhere.
        await self._delete(wanted)

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[None]:
        """Lock all worktrees that are not in use."""
        self._hold_owner_lock()
        async with hold_directory(self._directory):
            yield

    def _write_first_record(
        self, repo: Repository, cwd: Path, run_id: str, node: str, commit: str
    ) -> Record:
        """Write the record of a worktree before it is created."""
        self._hold_owner_lock()
        name = new_name(run_id, node)
        path = self._directory.resolve() / name
        root = repo.root.resolve()
        if path.is_relative_to(root):
            raise StepError(
                f"the data directory is inside the repository {str(root)!r}: "
                "set INFLOOP_DATA_DIR to a directory elsewhere"
            )
        inside = path / cwd.resolve().relative_to(root)
        record = Record(
            name=name,
            run_id=run_id,
            node=node,
            repository=str(root),
            common=str(repo.common),
            path=str(path),
            cwd=str(inside),
            commit=commit,
            owner=self._owner,
            created_at_ms=self.store.now_ms(),
            kind=self._kind_of(node),
        )
        self._records.write(record)
        return record

    def _kind_of(self, node: str) -> KindName:
        """Return the kind of a new worktree of a node."""
        return "clone" if node == RUN_CHECKOUT else self._new_kind

    def _hold_owner_lock(self) -> None:
        if self._owner_lock is None:
            for path in (self._directory, self._directory / "owners"):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner_lock = LockFile(self._owner_file(self._owner))

    def _owner_file(self, owner: str) -> Path:
        return self._directory / "owners" / owner

    def _status(self, record: Record) -> Status:
        if record.stage == "removed":
            return "saved"
        return "in use" if is_held(self._owner_file(record.owner)) else "orphaned"

    def _record(self, worktree: Worktree | str) -> Record:
        name = worktree if isinstance(worktree, str) else worktree.name
        record = self._records.read(name)
        if record is None:
            raise UsageError(f"there is no worktree {name!r}")
        return record

    def _repository(self, record: Record) -> Repository:
        return Repository(self.store.git, Path(record.repository), Path(record.common))

    async def _discard(self, record: Record) -> None:
        """Remove a worktree that was never used, and its record."""
        await self._delete(record)
        self.store.unpin(record.name)
        self._records.delete(record.name)

    async def _delete(self, record: Record) -> None:
        await in_thread(lambda _: self._delete_files(Path(record.path).name))
        self.store.drop_cache(Path(record.path))
        admin = Path(record.admin) if record.admin else None
        kind = self._kinds[record.kind]
        await kind.remove_git(self._repository(record), Path(record.path), admin)

    def _delete_files(self, name: str) -> None:
        with beneath.open_root(self._directory) as directory:
            remove_tree_at(directory, name)


async def _existing_commit(repo: Repository, saved: Saved) -> str | None:
    """Return the last or first commit of a worktree that the repository still has."""
    for commit in (saved.head, saved.commit):
        if commit and (found := await repo.ref(commit)):
            return found
    return None


async def _start_commit(repo: Repository, ref: str | None, *, include_uncommitted: bool) -> str:
    head = await repo.commit("HEAD")
    if not ref:
        if head is None:
            raise StepError(
                f"the repository {str(repo.root)!r} has no commit yet: make a first one, "
                "or turn the worktree off (`useWorktree: false`, or `infloop loop --in-place`)"
            )
        return head
    commit = await repo.commit(ref)
    if commit is None:
        raise StepError(f"there is no {ref!r} in the repository {str(repo.root)!r}")
    if include_uncommitted and commit != head:
        raise UsageError(
            f"uncommitted changes belong to what is checked out, which is not {ref!r}: "
            "leave the ref empty, or leave the changes out"
        )
    return commit


def _copy_uncommitted(
    source: Path, cwd: Path, target: Path, changed: Sequence[bytes], include: Sequence[str]
) -> None:
    """Copy what is not in the commit, and create the working directory if it is missing."""
    with beneath.open_root(source) as taken, beneath.open_root(target) as root:
        uncommitted.copy(taken, root, changed)
        uncommitted.copy(taken, root, uncommitted.matching(taken, include))
        inside = os.fsencode(cwd.relative_to(target))
        beneath.make_directories(root, b"" if inside == b"." else inside)


def _copy_kept_files(saved: Saved, path: Path, wanted: Sequence[str]) -> None:
    """Copy the kept files at or below the paths `wanted` back, where permissions allow it."""
    kept = Path(saved.kept or "", saving.KEPT_FILES)
    for folder, _, names in os.walk(kept) if saved.kept else ():
        inside = Path(folder).relative_to(kept)
        for name in names:
            file = inside / name
            if any(file.is_relative_to(each) for each in wanted):
                with suppress(PermissionError):
                    target = _make_directory(path / inside) / name
                    shutil.copy2(kept / file, target, follow_symlinks=False)


def _worktree(record: Record) -> Worktree:
    assert record.base
    return Worktree(
        name=record.name,
        run_id=record.run_id,
        node=record.node,
        path=Path(record.path),
        cwd=Path(record.cwd),
        repository=Path(record.repository),
        commit=record.commit,
        base=record.base,
        ref=record.ref,
        admin=Path(record.admin) if record.admin else None,
        objects=Path(record.common, "objects") if record.kind == "clone" else None,
    )


def _listed(record: Record, status: Status) -> WorktreeInfo:
    return WorktreeInfo(
        name=record.name,
        run_id=record.run_id,
        node=record.node,
        repository=record.repository,
        path=record.path,
        status=status,
        created_at_ms=record.created_at_ms,
        base=record.base,
        saved=record.saved,
    )


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()


def empty_path(path: Path) -> Path:
    """Return an absolute path; raise UsageError unless it is missing or an empty directory."""
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise UsageError(f"{str(path)!r} exists: choose a path that does not")
    return path.absolute()


def _make_directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
