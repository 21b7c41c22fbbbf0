"""Keeping the whole state of a worktree.

Files go into a snapshot, whoever knows of them. Commits stay in the user's repository, where refs
of ours keep them from being collected (see `commits`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.workspace import beneath
from infloop.workspace.worktrees.checkout import ignored
from infloop.workspace.worktrees.records import Record, Saved
from infloop.workspace.worktrees.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.workspace.snapshots.store import SnapshotStore
    from infloop.workspace.worktrees.kinds import Kind

OWN_GIT = ".git"
"""Under this name the git of a clone is saved whose commits did not come home."""
MODULES = ".git/modules"
"""Under this name the repositories of a worktree's submodules are saved."""
KEPT_FILES, KEPT_MODULES = "files", "modules"
"""Where files that no snapshot holds are kept: those of the tree, and those of `MODULES`."""


class Aside(NamedTuple):
    """Something to be set aside: where it is, and the directory that it goes to."""

    place: Path
    path: bytes
    into: Path


async def save(store: SnapshotStore, record: Record, base: str, kind: Kind) -> Saved:
    """Save a worktree; what its snapshot cannot hold is left to `set_aside`."""
    repo = Repository(store.git, Path(record.repository), Path(record.common))
    kept = await kind.keep_commits(repo, record)
    own_git = bool(kept.problem) and record.kind == "clone"
    final, repositories = await _keep_files(store, record, base, own_git=own_git)
    store.pin(record.name, base, final, *repositories.values())
    known = kept.head and _is_folder(repo.common)
    rules = await ignored(store, repo, Path(record.path), kept.head) if known else ()
    return Saved(
        record.name,
        record.run_id,
        record.node,
        record.repository,
        record.common,
        record.commit,
        base,
        final,
        kept.head,
        kept.refs,
        rules,
        repositories,
        record.saved.kept if record.saved else None,
        store.now_ms(),
        record.kind,
        kept.problem,
    )


async def _keep_files(
    store: SnapshotStore, record: Record, base: str, *, own_git: bool
) -> tuple[str, dict[str, str]]:
    """Return the snapshot of all files, and those of the repositories among them.

    Git is not asked what it makes of them: what it would act on may be an agent's.
    """
    path = Path(record.path)
    if not _is_folder(path):  # somebody removed it: what is known of it is all there is
        saved = record.saved
        return (saved.final, saved.repositories) if saved else (base, {})
    final = await store.take(path, "saved worktree", any_size=True, ask_git=False)
    found = {inside: path / inside for inside in final.repositories}
    if own_git:
        found[OWN_GIT] = path / OWN_GIT
    elif record.admin and _is_folder(Path(record.admin)):
        found[MODULES] = Path(record.admin) / "modules"
    repositories = {
        name: (await store.take(place, "repository", any_size=True, ask_git=False)).id
        for name, place in found.items()
        if _is_folder(place)
    }
    return final.id, repositories


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


async def not_held(store: SnapshotStore, record: Record, saved: Saved) -> list[Aside]:
    """Return what the snapshots of a worktree do not hold, and where it is to go."""
    places = {"": Path(record.path)}
    places |= {inside: Path(record.path) / inside for inside in saved.repositories}
    if record.admin:
        places[MODULES] = Path(record.admin) / "modules"
    found: list[Aside] = []
    for inside, snapshot in {"": saved.final, **saved.repositories}.items():
        skipped = (await store.state(snapshot)).notes.skipped
        paths = [os.fsencode(each.path) for each in skipped if each.reason != "special"]
        target = Path(KEPT_MODULES if inside == MODULES else KEPT_FILES)
        into = target if inside in ("", MODULES) else target / inside
        found += [Aside(places[inside], path, into) for path in paths]
    return found


def set_aside(saved: Saved, found: Sequence[Aside], directory: Path) -> Saved:
    """Move what no snapshot holds out of a worktree that is to be removed."""
    for each in found:
        into = directory / each.into
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        with beneath.opened(each.place) as source, beneath.opened(into) as target:
            _move(source, target, each.path)
    return replace(saved, kept=str(directory)) if directory.exists() else saved


def _move(source: int, target: int, path: bytes) -> None:
    beneath.make_folders(target, path.rpartition(b"/")[0])
    with (
        beneath.parent(source, path) as (above, name),
        beneath.parent(target, path) as (aside, _),
    ):
        beneath.make_writable(above)
        # A directory that may not be written may not be moved either.
        beneath.open_up(above, name)
        os.rename(name, name, src_dir_fd=above, dst_dir_fd=aside)
