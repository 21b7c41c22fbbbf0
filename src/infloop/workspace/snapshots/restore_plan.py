"""Decides which changes a restore makes, and whether it is possible."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import StepError
from infloop.workspace.snapshots.objects import FOLDER, LINK
from infloop.workspace.snapshots.restore import Permission, TreeUpdate
from infloop.workspace.snapshots.walk import git_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from infloop.workspace.snapshots.metadata import Metadata
    from infloop.workspace.snapshots.stat_cache import Folder
    from infloop.workspace.snapshots.trees import Difference


class StoredTree(NamedTuple):
    """A stored tree: the id of the snapshot, the id of its files, and its metadata."""

    id: str
    files: str
    metadata: Metadata


class ScannedTree(NamedTuple):
    """A tree that was just scanned: its stored form and its file stats."""

    stored: StoredTree
    folder: Folder


def restore_update(
    scan: ScannedTree, target: StoredTree, found: Sequence[Difference]
) -> TreeUpdate:
    """Return the changes that turn the scanned tree into the target."""

    def mode(each: Difference) -> int | None:
        return target.metadata.permissions(each.path, each.new.mode) if each.new else None

    placed, modes, permissions = _placements(found, mode)
    permissions += tuple(_permissions(scan, target.metadata, {each.path for each in found}))
    gone = _removed_special_files(scan.stored, target)
    return TreeUpdate(placed, scan.folder, modes, permissions, gone)


def merge_update(
    scan: ScannedTree, found: Sequence[Difference], mode: Callable[[Difference], int | None]
) -> TreeUpdate:
    """Return the update for these changes to files and links; directories follow from them."""
    placed, modes, permissions = _placements(found, mode)
    return TreeUpdate(placed, scan.folder, modes, permissions, remove_emptied=True)


def _placements(
    found: Sequence[Difference], mode: Callable[[Difference], int | None]
) -> tuple[tuple[Difference, ...], dict[bytes, int], tuple[Permission, ...]]:
    """Return the differences to write, their permissions, and permission-only changes."""
    placed = tuple(each for each in found if not _same_content(each))
    given = [(each, chosen) for each in found if (chosen := mode(each)) is not None]
    modes = {each.path: chosen for each, chosen in given}
    permissions = tuple(
        Permission(each.path, chosen)
        for each, chosen in given
        if _same_content(each) or (each.new and each.new.is_folder)
    )
    return placed, modes, permissions


def unremoved_paths(now: StoredTree, target: StoredTree) -> tuple[str, ...]:
    """Return the paths that are not in the target and stay, because no snapshot can hold them."""
    return tuple(sorted(set(_unsaved(now)) - set(_unsaved(target))))


def check_blockers(now: StoredTree, found: Iterable[Difference]) -> None:
    """Raise StepError if the restore would have to remove something that no snapshot can hold."""
    unsaved = _unsaved(now)
    reached = {reached: path for path in unsaved for reached in (path, *parent_paths(path))}
    for each in found:
        path = os.fsdecode(each.path)
        blocker = reached.get(path)
        if blocker is None or each.new is None or (each.new.is_folder and blocker != path):
            continue
        raise StepError(
            f"{blocker!r} is in the way, and no snapshot can hold it (it is a repository, too "
            "large or unreadable): move it away and restore again"
        )


def parent_paths(path: str) -> Iterator[str]:
    """Yield the parent directories of a path, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _same_content(each: Difference) -> bool:
    """Tell whether only permissions differ."""
    old, new = each.old, each.new
    return bool(old and new and old.id == new.id and LINK not in (old.mode, new.mode))


def _permissions(
    scan: ScannedTree, wanted: Metadata, differing: set[bytes]
) -> Iterator[Permission]:
    """Yield the permissions to change on paths whose content is already right."""
    for path, mode in _candidates(scan, wanted):
        if mode is None or path in differing or stat.S_ISLNK(mode):
            continue
        kind = FOLDER if stat.S_ISDIR(mode) else git_mode(mode)
        permission = wanted.permissions(path, kind)
        if permission is not None and permission != stat.S_IMODE(mode):
            yield Permission(path, permission)


def _candidates(scan: ScannedTree, wanted: Metadata) -> Iterable[tuple[bytes, int | None]]:
    now = scan.stored.metadata
    if now.umask != wanted.umask:
        return scan.folder.modes()
    noted = {os.fsencode(path) for path in now.modes.keys() | wanted.modes.keys()}
    return [(path, scan.folder.mode_of(path)) for path in noted]


def _removed_special_files(now: StoredTree, target: StoredTree) -> tuple[bytes, ...]:
    """Return the sockets and pipes that are not in the target."""
    stays = set(target.metadata.skipped)
    gone = [each for each in now.metadata.skipped if each.reason == "special" and each not in stays]
    return tuple(os.fsencode(each.path) for each in gone)


def _unsaved(state: StoredTree) -> list[str]:
    """Return the existing paths that no snapshot holds."""
    skipped = [each.path for each in state.metadata.skipped if each.reason != "special"]
    return [*skipped, *state.metadata.repositories]
