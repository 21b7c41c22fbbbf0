"""Where the git repository around a directory keeps its files, for a fence that must let it work.

Read from the files themselves, without git and without following what they name any further: a
directory may have been made by somebody who wants to be shown more than is theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_LONGEST = 4096


class Places(NamedTuple):
    """What is changed, and what is only read, by work in a directory of a repository.

    What is read may lie in what is changed: the deeper path counts, where the level can do that.
    `is_its_own` if the repository belongs to whoever works there.
    """

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    is_its_own: bool = False


def git_places(directory: str) -> Places:
    """Return the places of the repository around a directory; none if there is none.

    That is the top of its tree, whose `.git` is only read; of a worktree the repository's own
    directory too.
    """
    start = Path(directory).resolve()
    for top in (start, *start.parents):
        mark = top / ".git"
        if mark.is_symlink():
            return Places()
        if mark.is_dir():
            return Places((str(top),), (str(mark),))
        if mark.is_file():
            return _worktree(top, mark)
    return Places()


def _worktree(top: Path, mark: Path) -> Places:
    admin = _named(mark, "gitdir: ", top)
    if admin is None or admin.parent.name != "worktrees" or not _points_back(admin, mark):
        return Places((str(top),), (str(mark),))
    return Places((str(top),), (str(mark), str(admin.parent.parent)))


def _points_back(admin: Path, mark: Path) -> bool:
    """Say whether the repository knows the worktree as its own."""
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
