"""Deciding what a restore has to do, and whether it can: from what was read and what is wanted."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import StepError
from infloop.workspace.snapshots.objects import FOLDER, LINK
from infloop.workspace.snapshots.restore import Permission, Work
from infloop.workspace.snapshots.walk import git_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from infloop.workspace.snapshots.index import Folder
    from infloop.workspace.snapshots.metadata import Notes
    from infloop.workspace.snapshots.trees import Difference


class State(NamedTuple):
    """A stored tree: the id of the whole, of its files, and the notes."""

    id: str
    files: str
    notes: Notes


class Read(NamedTuple):
    """A tree that was just read: what is stored of it, and how it looked."""

    state: State
    folder: Folder


def work(read: Read, target: State, found: Sequence[Difference]) -> Work:
    """Return what makes a tree that was just read like the target."""

    def mode(each: Difference) -> int | None:
        return target.notes.permissions(each.path, each.new.mode) if each.new else None

    placed, modes, permissions = _placements(found, mode)
    permissions += tuple(_permissions(read, target.notes, {each.path for each in found}))
    gone = _fleeting(read.state, target)
    return Work(placed, read.folder, modes, permissions, gone)


def merged_work(
    read: Read, found: Sequence[Difference], mode: Callable[[Difference], int | None]
) -> Work:
    """Return what makes these changes to files and links; directories come and go with them."""
    placed, modes, permissions = _placements(found, mode)
    return Work(placed, read.folder, modes, permissions, tidy=True)


def _placements(
    found: Sequence[Difference], mode: Callable[[Difference], int | None]
) -> tuple[tuple[Difference, ...], dict[bytes, int], tuple[Permission, ...]]:
    """Return what is to be put in place, with which permissions, and where only these change."""
    placed = tuple(each for each in found if not _same_content(each))
    given = [(each, chosen) for each in found if (chosen := mode(each)) is not None]
    modes = {each.path: chosen for each, chosen in given}
    permissions = tuple(
        Permission(each.path, chosen)
        for each, chosen in given
        if _same_content(each) or (each.new and each.new.is_folder)
    )
    return placed, modes, permissions


def left(now: State, target: State) -> tuple[str, ...]:
    """Return what stays though the target does not know it, because no snapshot holds it."""
    return tuple(sorted(set(_unsaved(now)) - set(_unsaved(target))))


def check_room(now: State, found: Iterable[Difference]) -> None:
    """Raise StepError if something that no snapshot holds would have to go."""
    unsaved = _unsaved(now)
    reached = {place: path for path in unsaved for place in (path, *leading_to(path))}
    for each in found:
        path = os.fsdecode(each.path)
        blocker = reached.get(path)
        if blocker is None or each.new is None or (each.new.is_folder and blocker != path):
            continue
        raise StepError(
            f"{blocker!r} is in the way and cannot be kept (it is a repository, too large or "
            "unreadable): move it away and restore again"
        )


def leading_to(path: str) -> Iterator[str]:
    """Give the directories that lead to a path, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _same_content(each: Difference) -> bool:
    """Say whether nothing but permissions differ."""
    old, new = each.old, each.new
    return bool(old and new and old.id == new.id and LINK not in (old.mode, new.mode))


def _permissions(read: Read, wanted: Notes, differing: set[bytes]) -> Iterator[Permission]:
    """Give the permissions to set on what is otherwise as it should be."""
    for path, mode in _candidates(read, wanted):
        if mode is None or path in differing or stat.S_ISLNK(mode):
            continue
        kind = FOLDER if stat.S_ISDIR(mode) else git_mode(mode)
        permission = wanted.permissions(path, kind)
        if permission is not None and permission != stat.S_IMODE(mode):
            yield Permission(path, permission)


def _candidates(read: Read, wanted: Notes) -> Iterable[tuple[bytes, int | None]]:
    now = read.state.notes
    if now.umask != wanted.umask:
        return read.folder.modes()
    noted = {os.fsencode(path) for path in now.modes.keys() | wanted.modes.keys()}
    return [(path, read.folder.mode_of(path)) for path in noted]


def _fleeting(now: State, target: State) -> tuple[bytes, ...]:
    """Return the sockets and pipes that the target does not know."""
    stays = set(target.notes.skipped)
    gone = [each for each in now.notes.skipped if each.reason == "special" and each not in stays]
    return tuple(os.fsencode(each.path) for each in gone)


def _unsaved(state: State) -> list[str]:
    """Return the paths that are there and that no snapshot holds."""
    skipped = [each.path for each in state.notes.skipped if each.reason != "special"]
    return [*skipped, *state.notes.repositories]
