"""Saves the whole state of a worktree.

Files are saved in a snapshot, whether git knows them or not. Commits stay in the user's repository,
where our refs protect them from garbage collection (see `commits`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from infloop.workspace import beneath
from infloop.workspace.worktrees.checkout import ignored
from infloop.workspace.worktrees.records import Record, Saved
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.worktrees.kinds import WorktreeKind

OWN_GIT = ".git"
"""The name under which the git directory of a clone is saved if its commits were not imported."""
MODULES = ".git/modules"
"""The name under which the repositories of a worktree's submodules are saved."""
KEPT_FILES, KEPT_MODULES = "files", "modules"
"""The directories for files that no snapshot holds: those of the tree, and those of `MODULES`."""


class UnsavedFile(NamedTuple):
    """A file that no snapshot holds, and the directory it is moved to."""

    directory: Path
    path: bytes
    into: Path


async def save(store: SnapshotStore, record: Record, base: str, kind: WorktreeKind) -> Saved:
    """Save a worktree; what a snapshot cannot hold is left to `move_unsaved`."""
    repo = Repository(store.git, Path(record.repository), Path(record.common))
    commits = await kind.save_commits(repo, record)
    own_git = bool(commits.problem) and record.kind == "clone"
    final, repositories = await _save_files(store, record, base, own_git=own_git)
    store.pin(record.name, base, final, *repositories.values())
    ignored_paths: tuple[str, ...] = ()
    if commits.head and _is_folder(repo.common):
        ignored_paths = await ignored(store, repo, Path(record.path), commits.head)
    return Saved(
        name=record.name,
        run_id=record.run_id,
        node=record.node,
        repository=record.repository,
        common=record.common,
        commit=record.commit,
        base=base,
        final=final,
        head=commits.head,
        refs=commits.refs,
        ignored=ignored_paths,
        repositories=repositories,
        kept=record.saved.kept if record.saved else None,
        saved_at_ms=store.now_ms(),
        kind=record.kind,
        problem=commits.problem,
    )


async def _save_files(
    store: SnapshotStore, record: Record, base: str, *, own_git: bool
) -> tuple[str, dict[str, str]]:
    """Return the snapshot of all files, and those of nested repositories.

    Git is not run on them: an agent may have written what git would act on.
    """
    path = Path(record.path)
    if not _is_folder(path):  # the directory was removed: use what was saved before
        saved = record.saved
        return (saved.final, saved.repositories) if saved else (base, {})
    final = await store.take(path, "saved worktree", any_size=True, ask_git=False)
    found = {inside: path / inside for inside in final.repositories}
    if own_git:
        found[OWN_GIT] = path / OWN_GIT
    elif record.admin and _is_folder(Path(record.admin)):
        found[MODULES] = Path(record.admin) / "modules"
    repositories = {
        name: (await store.take(directory, "repository", any_size=True, ask_git=False)).id
        for name, directory in found.items()
        if _is_folder(directory)
    }
    return final.id, repositories


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


async def find_unsaved(store: SnapshotStore, record: Record, saved: Saved) -> list[UnsavedFile]:
    """Return the files that the snapshots of a worktree do not hold, and where to move them."""
    places = {"": Path(record.path)}
    places |= {inside: Path(record.path) / inside for inside in saved.repositories}
    if record.admin:
        places[MODULES] = Path(record.admin) / "modules"
    found: list[UnsavedFile] = []
    for inside, snapshot in {"": saved.final, **saved.repositories}.items():
        skipped = (await store.stored_tree(snapshot)).metadata.skipped
        paths = [os.fsencode(each.path) for each in skipped if each.reason != "special"]
        target = Path(KEPT_MODULES if inside == MODULES else KEPT_FILES)
        into = target if inside in ("", MODULES) else target / inside
        found += [UnsavedFile(places[inside], path, into) for path in paths]
    return found


def move_unsaved(saved: Saved, found: Sequence[UnsavedFile], directory: Path) -> Saved:
    """Move files that no snapshot holds out of a worktree that is to be removed."""
    for each in found:
        into = directory / each.into
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        with beneath.open_root(each.directory) as source, beneath.open_root(into) as target:
            _move(source, target, each.path)
    return replace(saved, kept=str(directory)) if directory.exists() else saved


def _move(source: int, target: int, path: bytes) -> None:
    beneath.make_directories(target, path.rpartition(b"/")[0])
    with (
        beneath.open_parent(source, path) as (above, name),
        beneath.open_parent(target, path) as (aside, _),
    ):
        beneath.make_writable(above)
        # A directory without write permission cannot be moved.
        beneath.make_accessible(above, name)
        os.rename(name, name, src_dir_fd=above, dst_dir_fd=aside)
