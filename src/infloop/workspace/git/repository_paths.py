"""Finds the paths of a git repository that a confined child needs.

The paths are read from the repository's own files. Git is not run, and a path named in a file is
not followed further: the directory may be written by an attacker who wants to see more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from infloop.policy.writable_roots import why_too_wide

_LONGEST = 4096


class GitPaths(NamedTuple):
    """The paths that work in a repository writes, and those it only reads.

    A read path may lie inside a write path; the deeper path wins where the isolation level can
    do that. `is_private` means that the repository belongs to the agent alone. `pinned` has the
    device and inode of some of the paths.
    """

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    is_private: bool = False
    pinned: tuple[tuple[str, int, int], ...] = ()


class Discovery(NamedTuple):
    """Which repositories around a directory are used.

    Only those of the `owners` (user ids) are, as git does it (safe.directory): anybody can create a
    `.git` in a directory that all users share. A home, or another directory that holds more than
    one project, is not used as a work tree; see `policy/writable_roots`.
    """

    owners: frozenset[int]
    homes: frozenset[str] = frozenset()

    def trusts(self, *paths: Path) -> bool:
        """Tell whether all paths belong to an owner; links do not count."""
        try:
            return all(path.lstat().st_uid in self.owners for path in paths)
        except OSError:
            return False


def work_tree(directory: Path, discovery: Discovery) -> Path | None:
    """Return the top of the work tree that contains a real directory, if it is used."""
    for top in (directory, *directory.parents):
        mark = top / ".git"
        if mark.is_symlink():
            return None
        if mark.exists():
            is_used = discovery.trusts(top, mark) and not why_too_wide(str(top), discovery.homes)
            return top if is_used else None
    return None


def git_paths(directory: str, discovery: Discovery | None = None) -> GitPaths:
    """Return the paths of the repository that contains `directory`; empty if there is none.

    They are all read-only, the work tree too: a child writes to its own directory. For a worktree,
    the directory of the main repository is one of them.
    """
    discovery = discovery or Discovery(frozenset((os.geteuid(),)))
    top = work_tree(Path(directory).resolve(), discovery)
    if top is None:
        return GitPaths()
    mark = top / ".git"
    found = (str(top), str(mark))
    if mark.is_file() and (common := _common_directory(top, mark, discovery)):
        return GitPaths(read=(*found, str(common)))
    return GitPaths(read=found)


def _common_directory(top: Path, mark: Path, discovery: Discovery) -> Path | None:
    """Return the directory of the repository that a worktree belongs to."""
    admin = _named(mark, "gitdir: ", top)
    if admin is None or admin.parent.name != "worktrees" or not _points_back(admin, mark):
        return None
    common = admin.parent.parent
    return common if discovery.trusts(admin, admin.parent, common) else None


def _points_back(admin: Path, mark: Path) -> bool:
    """Tell whether the repository lists this worktree as its own."""
    named = _named(admin / "gitdir", "", admin)
    return named is not None and named == mark.resolve()


def _named(file: Path, prefix: str, base: Path) -> Path | None:
    try:
        line = file.read_bytes()[:_LONGEST].decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not line.startswith(prefix) or "\n" in line or "\0" in line:
        return None
    return (base / line.removeprefix(prefix)).resolve()
