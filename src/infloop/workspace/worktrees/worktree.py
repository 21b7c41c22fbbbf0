"""A tree of its own for each agent, and nothing an agent wrote is ever lost.

A worktree is a real one of the user's repository (`linked`) or, for agents that are confined, a
private clone (`clone`), made in our data directory. Its files are written by a git that knows no
filters, exactly as they are in the commit. What git would find in the worktree's own `.git` is
never asked, except by a git that is confined: an agent may have written that.

Before a worktree is removed it is saved: all files in a snapshot, repositories inside it in others,
files too large for one aside; its commits, those it dropped too, under refs of our own in
the user's repository. A worktree whose process died is found by its record, and saved all the same.

One that is gone can be made again where it was: for its own run, which goes on, or for another run
that takes up from it. Paths that steps have written down then still lead to it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.errors import StepError, UsageError
from infloop.lowlevel.directory_lock import hold_directory
from infloop.lowlevel.lock_file import LockFile, is_held, remove_if_free
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.workspace import beneath
from infloop.workspace.snapshots.store import SnapshotStore
from infloop.workspace.threads import in_thread
from infloop.workspace.worktrees import checkout, repository, saving
from infloop.workspace.worktrees import uncommitted as carry
from infloop.workspace.worktrees.clone import Clones
from infloop.workspace.worktrees.linked import Linked
from infloop.workspace.worktrees.naming import new_name
from infloop.workspace.worktrees.records import Record, Records, Saved
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from infloop.workspace.git.program import Confine, RunProgram
    from infloop.workspace.worktrees.kinds import Kind
    from infloop.workspace.worktrees.records import KindName

Status: TypeAlias = Literal["in use", "orphaned", "saved"]


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree that somebody may work in.

    `path` is its root, `cwd` the directory in it that the user's own directory stands for,
    `repository` the root of the user's tree, `commit` where it began, `base` the snapshot
    of it as it was given out, `ref` what was asked for as its beginning, `admin` git's side of it,
    and `objects` where the objects are that a clone borrows.
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


@dataclass(frozen=True, slots=True)
class Listed:
    """What there is to know of a worktree: whether its process lives, and what was saved."""

    name: str
    run_id: str
    node: str
    repository: str
    path: str
    status: Status
    created_at_ms: int
    saved: Saved | None


class Worktrees:
    """All worktrees of a data directory; `close` when no more is to be made."""

    def __init__(
        self,
        data_dir: Path,
        run: RunProgram,
        *,
        store: SnapshotStore | None = None,
        confine: Confine | None = None,
        user: tuple[int, int] | None = None,
    ) -> None:
        """Make worktrees or, if there is something to `confine` programs with, private clones.

        `user` is as whom confined children run, when that is another one.
        """
        self.store = store or SnapshotStore(data_dir / "snapshots", run, exclude=(data_dir,))
        self._directory = data_dir / "worktrees"
        self._records = Records(self._directory)
        self._kinds: dict[KindName, Kind] = {"worktree": Linked(), "clone": Clones(confine, user)}
        self._made_now: KindName = "clone" if confine else "worktree"
        self._owner = secrets.token_hex(8)
        self._presence: LockFile | None = None

    def close(self) -> None:
        """Own no worktree any more; those that are left are orphaned."""
        if self._presence:
            self._presence.release()
            self._presence = None

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
        """Make a worktree of the repository that `cwd` is in.

        It begins at `ref`, or else at what is checked out; with `include_uncommitted`, with the
        user's changes laid over it, deletions and new files that are not ignored among them.
        `include` are paths and patterns of files that come along even if git ignores them.
        """
        carry.check_patterns(include)
        repo = await repository.find(self.store.git, cwd)
        commit = await _starting_point(repo, ref, include_uncommitted=include_uncommitted)
        record = replace(self._begin(repo, cwd, run_id, node, commit), ref=ref or "")
        kind = self._kinds[record.kind]
        try:
            path = Path(record.path)
            record = replace(record, admin=str(await kind.make(repo, path, commit, ())))
            self._records.write(record)
            await checkout.lay_out(self.store, repo, path, Path(record.admin or ""), commit)
            changed = include_uncommitted
            paths = await checkout.uncommitted(self.store, repo, commit) if changed else []
            await in_thread(lambda _: _bring(repo.root, Path(record.cwd), path, paths, include))
            await in_thread(lambda _: kind.hand_over(path))
            base = await self.store.take(path, "worktree", any_size=True)
            self.store.pin(record.name, base.id)
            record = replace(record, stage="ready", base=base.id)
            self._records.write(record)
        except BaseException:
            # Nobody has worked in it: it can go.
            await run_uncancelled(self._discard(record))
            raise
        return _worktree(record)

    async def reopen(self, run_id: str, node: str) -> Worktree | None:
        """Return the worktree that a run has for a node, which this process owns from now on.

        One that was saved and removed is made again, where it was and as it was.
        """
        async with self._turn():
            for record in reversed(self._records.all()):
                if (record.run_id, record.node) == (run_id, node) and record.stage != "creating":
                    return _worktree(await self._opened(record))
        return None

    async def take_up(
        self, saved: Saved, run_id: str, snapshot: str, head: str | None = None
    ) -> Worktree:
        """Make a saved worktree again, where it was, for another run and from another moment.

        `snapshot` is one of its tree, `head` the commit it had checked out then.
        """
        async with self._turn():
            before = self._record(saved.name)
            await self._make_room(before)
            record = replace(
                before,
                name=new_name(run_id, before.node),
                run_id=run_id,
                owner=self._owner,
                created_at_ms=self.store.now_ms(),
                stage="creating",
                saved=None,
                kind=self._made_now,
            )
            self._records.write(record)
            self.store.pin(record.name, saved.base, snapshot)
            wanted = replace(saved, final=snapshot, head=head or saved.head)
            try:
                return _worktree(await self._made_again(record, wanted))
            except BaseException:
                await run_uncancelled(self._discard(record))
                raise

    async def rewind(self, worktree: Worktree, snapshot: str) -> None:
        """Make the files of a worktree what they were in a snapshot of it."""
        kind = self._kinds[self._record(worktree).kind]
        await self.store.restore(_made(worktree.path), snapshot)
        await in_thread(lambda _: kind.hand_over(worktree.path))

    async def head(self, worktree: Worktree) -> str:
        """Return the commit that a worktree has checked out now, or nothing."""
        record = self._record(worktree)
        if worktree.admin is None:
            return ""
        return await self._kinds[record.kind].head(self._repository(record), worktree.admin)

    async def save(self, worktree: Worktree | str) -> Saved:
        """Keep the whole state of a worktree as it is now; it may go on being used."""
        record = self._record(worktree)
        if record.stage in ("removing", "removed") and record.saved:
            return record.saved
        if record.base is None:
            raise UsageError(
                f"worktree {record.name!r} was never finished: there is nothing to save"
            )
        saved = await saving.save(self.store, record, record.base, self._kinds[record.kind])
        self._records.write(replace(record, saved=saved))
        return saved

    async def remove(self, worktree: Worktree | str) -> Saved:
        """Save a worktree, then remove it; if it cannot be saved it is not removed."""
        saved = await self.save(worktree)
        record = self._record(worktree)
        if record.stage == "ready":
            found = await saving.not_held(self.store, record, saved)
            aside = self._directory / f"{record.name}.kept"
            saved = await in_thread(lambda _: saving.set_aside(saved, found, aside))
            record = replace(record, stage="removing", saved=saved)
            self._records.write(record)
        if record.stage == "removing":
            await self._delete(record)
            self._records.write(replace(record, stage="removed"))
        return saved

    def listed(self) -> list[Listed]:
        """Return all worktrees, and those of which only the saved state is left."""
        return [_listed(record, self._status(record)) for record in self._records.all()]

    async def prune(self, run_ids: Collection[str] | None = None) -> list[Saved]:
        """Save and remove the worktrees whose process died, of all runs or of some."""
        done: list[Saved] = []
        async with self._turn():
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
        """Drop for good what was saved of a removed worktree."""
        record = self._record(name)
        if record.stage != "removed" or record.saved is None:
            raise UsageError(f"worktree {name!r} is not removed: prune it first")
        repo = self._repository(record)
        for ref in record.saved.refs if _is_folder(record.common) else ():
            await repo.delete_ref(ref)
        await in_thread(lambda _: self._delete_files(f"{name}.kept"))
        self.store.unpin(name)
        self._records.delete(name)

    async def restore(self, saved: Saved, path: Path) -> Path:
        """Make a saved worktree again for a person, where there is nothing; return the path.

        It is a worktree of the repository, at the commit it had; without the repository it
        is a plain directory. The repositories of submodules are not put back, and those that a
        confined agent left inside have another name: git would do what their settings say.
        """
        place = empty_place(path)
        await self._write_out(saved, place, "worktree", as_it_was=saved.kind == "worktree")
        return place

    async def _write_out(
        self, saved: Saved, place: Path, kind: KindName, *, as_it_was: bool
    ) -> Path | None:
        """Write what was saved to `place`; return where its git is, if it has one."""
        repo = Repository(self.store.git, Path(saved.repository), Path(saved.common))
        head = await _known_commit(repo, saved) if _is_folder(saved.common) else None
        admin = None
        if head:
            admin = await self._kinds[kind].make(repo, place, head, saved.refs)
            await checkout.lay_out(self.store, repo, place, admin, head)
        await self.store.restore(_made(place), saved.final)
        notes = (await self.store.state(saved.final)).notes
        for inside, snapshot in saved.repositories.items():
            if inside in notes.repositories:
                name = inside if as_it_was else f"{inside}.untrusted"
                await self.store.restore(_made(place / name), snapshot)
        held = [*(notes.repositories if as_it_was else ()), *(each.path for each in notes.skipped)]
        await in_thread(lambda _: _put_back(saved, place, held))
        return admin

    async def _opened(self, record: Record) -> Record:
        """Own a worktree that is there, or make it again."""
        if record.stage == "ready" and _is_folder(record.path) and record.kind == self._made_now:
            record = replace(record, owner=self._owner)
            self._records.write(record)
            return record
        saved = await self.remove(record.name)
        await self._make_room(record)
        return await self._made_again(self._record(record.name), saved)

    async def _made_again(self, record: Record, saved: Saved) -> Record:
        """Make what was saved again at the record's path; the caller has its turn."""
        kind = self._made_now
        place = empty_place(Path(record.path))
        admin = await self._write_out(saved, place, kind, as_it_was=True)
        _made(Path(record.cwd))
        await in_thread(lambda _: self._kinds[kind].hand_over(place))
        record = replace(
            record,
            stage="ready",
            owner=self._owner,
            admin=str(admin) if admin else None,
            kind=kind,
        )
        self._records.write(record)
        return record

    async def _make_room(self, wanted: Record) -> None:
        """See to it that nothing is where a worktree is to be made again; nothing gets lost."""
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
        # What is there now was being made when a process died: it is all kept elsewhere.
        await self._delete(wanted)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Have all worktrees that nobody is working in to oneself."""
        self._be_present()
        async with hold_directory(self._directory):
            yield

    def _begin(self, repo: Repository, cwd: Path, run_id: str, node: str, commit: str) -> Record:
        """Write down that a worktree is about to be made."""
        self._be_present()
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
            name,
            run_id,
            node,
            str(root),
            str(repo.common),
            str(path),
            str(inside),
            commit,
            self._owner,
            self.store.now_ms(),
            kind=self._made_now,
        )
        self._records.write(record)
        return record

    def _be_present(self) -> None:
        if self._presence is None:
            for path in (self._directory, self._directory / "owners"):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._presence = LockFile(self._owner_file(self._owner))

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
        """Remove a worktree in which nobody has worked, and forget it."""
        await self._delete(record)
        self.store.unpin(record.name)
        self._records.delete(record.name)

    async def _delete(self, record: Record) -> None:
        await in_thread(lambda _: self._delete_files(Path(record.path).name))
        self.store.forget(Path(record.path))
        admin = Path(record.admin) if record.admin else None
        kind = self._kinds[record.kind]
        await kind.unmake(self._repository(record), Path(record.path), admin)

    def _delete_files(self, name: str) -> None:
        with beneath.opened(self._directory) as directory:
            remove_tree_at(directory, name)


async def _known_commit(repo: Repository, saved: Saved) -> str | None:
    """Return the commit that a worktree had, or began at, if the repository still has it."""
    for commit in (saved.head, saved.commit):
        if commit and (found := await repo.ref(commit)):
            return found
    return None


async def _starting_point(repo: Repository, ref: str | None, *, include_uncommitted: bool) -> str:
    head = await repo.commit("HEAD")
    if not ref:
        if head is None:
            raise StepError(
                f"the repository {str(repo.root)!r} has no commit yet: make a first one, "
                "or turn the worktree off"
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


def _bring(
    source: Path, cwd: Path, target: Path, changed: Sequence[bytes], include: Sequence[str]
) -> None:
    """Copy what is not in the commit, and make sure there is the directory to work in."""
    with beneath.opened(source) as taken, beneath.opened(target) as root:
        carry.copy(taken, root, changed)
        carry.copy(taken, root, carry.matching(taken, include))
        inside = os.fsencode(cwd.relative_to(target))
        beneath.make_folders(root, b"" if inside == b"." else inside)


def _put_back(saved: Saved, place: Path, held: Sequence[str]) -> None:
    """Copy what had been set aside of these paths, where their directories let us."""
    kept = Path(saved.kept or "", saving.KEPT_FILES)
    for folder, _, names in os.walk(kept) if saved.kept else ():
        inside = Path(folder).relative_to(kept)
        for name in names:
            path = inside / name
            if any(path.is_relative_to(each) for each in held):
                with suppress(PermissionError):
                    shutil.copy2(kept / path, _made(place / inside) / name, follow_symlinks=False)


def _worktree(record: Record) -> Worktree:
    assert record.base
    return Worktree(
        record.name,
        record.run_id,
        record.node,
        Path(record.path),
        Path(record.cwd),
        Path(record.repository),
        record.commit,
        record.base,
        record.ref,
        Path(record.admin) if record.admin else None,
        Path(record.common, "objects") if record.kind == "clone" else None,
    )


def _listed(record: Record, status: Status) -> Listed:
    return Listed(
        record.name,
        record.run_id,
        record.node,
        record.repository,
        record.path,
        status,
        record.created_at_ms,
        record.saved,
    )


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()


def empty_place(path: Path) -> Path:
    """Return a path in full; raise UsageError unless there is nothing, or an empty directory."""
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise UsageError(f"{str(path)!r} exists: choose a path where there is nothing")
    return path.absolute()


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
