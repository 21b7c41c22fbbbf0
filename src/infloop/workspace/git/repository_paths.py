"""Finds the paths of a git repository that a confined child needs.

The paths are read from the repository's own files. Git is not run, and a path named in a file is
not followed further: the directory may be written by an attacker who wants to see more.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_LONGEST = 4096


class GitPaths(NamedTuple):
    """The paths that work in a repository writes, and those it only reads.

    A read path may lie inside a write path; the deeper path wins where the isolation level can
    do that. `is_private` means that the repository belongs to the agent alone.
    """

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    is_private: bool = False


def git_paths(directory: str) -> GitPaths:
    """Return the paths of the repository that contains `directory`; empty if there is none.

    The work tree is writable and its `.git` is read-only. For a worktree, the directory of the
    main repository is read-only too.
    """
    start = Path(directory).resolve()
    for top in (start, *start.parents):
        mark = top / ".git"
        if mark.is_symlink():
            return GitPaths()
        if mark.is_dir():
            return GitPaths((str(top),), (str(mark),))
        if mark.is_file():
            return _worktree(top, mark)
    return GitPaths()


def _worktree(top: Path, mark: Path) -> GitPaths:
    admin = _named(mark, "gitdir: ", top)
    if admin is None or admin.parent.name != "worktrees" or not _points_back(admin, mark):
        return GitPaths((str(top),), (str(mark),))
    return GitPaths((str(top),), (str(mark), str(admin.parent.parent)))


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
