"""Undoes changes of a child to git control files in repositories that are not its own.

Control files decide what git executes: hooks, configuration, attributes, and links to other
repositories. Somebody who runs git there later would execute what the child wrote.

- The repositories beneath a directory are scanned before and after the child runs.
- Changed control files are restored.
- The child's versions, and new repositories, get a name that git ignores. Nothing is deleted.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.errors import StepError
from infloop.workspace import beneath
from infloop.workspace.snapshots.changes import printable
from infloop.workspace.snapshots.walk import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infloop.workspace.threads import Stop

_MAX_FILE_BYTES = 64 << 20
_GIT = b".git"
_CONTROL_NAMES = frozenset({b"config", b"config.worktree", b"commondir", b"gitdir"})
_CONTROL_NAMES_IN_INFO = frozenset({b"attributes", b"alternates", b"http-alternates"})
_DATA_DIRECTORIES = frozenset({b"refs", b"logs", b"lfs"})


class GitFile(NamedTuple):
    """A control file or link; the `content` of a link is its target."""

    mode: int
    owner: tuple[int, int]
    content: bytes


@dataclass(frozen=True, slots=True)
class GitEntry:
    """Something named `.git`: its identity (device and inode) and its control files.

    A `.git` that is not a directory is its own only control file, under an empty name.
    """

    identity: tuple[int, int]
    files: dict[bytes, GitFile] = field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        """Whether it is a repository, and not a file or link that points to one."""
        return b"" not in self.files


Repositories: TypeAlias = dict[bytes, GitEntry]
"""Everything named `.git` beneath a directory, by path."""


def find_repositories(
    root: Path, excluded: Path, stop: Stop, *, inside: bool, max_entries: int
) -> Repositories:
    """Return the repositories beneath `root`; raise StepError for more than `max_entries` entries.

    With `inside` false, the control files of repository directories are not read. The directory
    `excluded` is not scanned.
    """
    found: Repositories = {}
    with beneath.open_root(root) as top:
        left = max_entries
        for path, above, names in _walk(top, str(root), str(excluded)):
            stop.check()
            left -= len(names)
            if left < 0:
                raise StepError(f"there are more than {max_entries} files in {str(root)!r}")
            if _GIT in names:
                with suppress(FileNotFoundError):
                    found[_join(path, _GIT)] = _scan_git(above, inside=inside)
    return found


def undo_changes(root: Path, before: Repositories, after: Repositories) -> list[str]:
    """Undo a child's changes to repositories that are not its own; return what was done.

    Raises OSError if that fails.
    """
    with beneath.open_root(root) as top:
        return list(_Undo(top, before, after).run())


class _Undo:
    def __init__(self, top: int, before: Repositories, after: Repositories) -> None:
        self._top = top
        self._before = before
        self._after = after
        self._suffix = b".planted-" + secrets.token_hex(3).encode()

    def run(self) -> Iterator[str]:
        known = {each.identity: each for each in self._before.values() if each.is_folder}
        here = {each.identity: path for path, each in self._after.items() if each.is_folder}
        for path, now in self._after.items():
            old = known.get(now.identity) if now.is_folder else self._before.get(path)
            if old is None or old.is_folder != now.is_folder:
                yield f"{_quoted(path)} is new: {self._rename(path)}"
            elif now.is_folder:
                yield from self._compare(path, old, now)
            elif old.files != now.files:
                yield f"{_quoted(path)} was changed: {self._rename(path)}"
        for path, old in self._before.items():
            if old.is_folder:
                yield from self._move_back(path, old, here.get(old.identity))
            elif not self._exists(path) and self._has_parent(path):
                self._write(path, old.files[b""])
                yield f"{_quoted(path)} was restored"

    def _compare(self, path: bytes, old: GitEntry, now: GitEntry) -> Iterator[str]:
        names = sorted(old.files.keys() | now.files.keys())
        differing = [name for name in names if old.files.get(name) != now.files.get(name)]
        for name in differing:
            whole = _join(path, name)
            if self._exists(whole):
                yield f"{_quoted(whole)} was written: {self._rename(whole)}"
        for name in differing:
            if name in old.files:
                self._write(_join(path, name), old.files[name])
                yield f"{_quoted(_join(path, name))} was restored"

    def _move_back(self, path: bytes, old: GitEntry, now: bytes | None) -> Iterator[str]:
        """Move a repository back to its original path."""
        if self._exists(path) or not self._has_parent(path):
            return
        now = now or self._search(old.identity)
        if now is None:
            yield f"{_quoted(path)} is gone"
            return
        with (
            beneath.open_parent(self._top, now) as (source, name),
            beneath.open_parent(self._top, path) as (target, last),
        ):
            os.rename(name, last, src_dir_fd=source, dst_dir_fd=target)
        moved = _scan_repository(self._top, path)
        yield f"{_quoted(path)} was moved to {_quoted(now)} and has been moved back"
        if old.files:
            yield from self._compare(path, old, moved)

    def _search(self, identity: tuple[int, int]) -> bytes | None:
        for path, above, names in _walk(self._top, "", "none"):
            for name in names:
                with suppress(FileNotFoundError):
                    if _identity(os.stat(name, dir_fd=above, follow_symlinks=False)) == identity:
                        return _join(path, name)
        return None

    def _rename(self, path: bytes) -> str:
        with beneath.open_parent(self._top, path) as (above, name):
            beneath.make_writable(above)
            with suppress(FileNotFoundError):  # another run in the same directory was faster
                os.rename(name, name + self._suffix, src_dir_fd=above, dst_dir_fd=above)
        return f"it was renamed to {_quoted(path + self._suffix)}"

    def _write(self, path: bytes, file: GitFile) -> None:
        beneath.make_directories(self._top, path.rpartition(b"/")[0])
        with beneath.open_parent(self._top, path) as (above, name):
            beneath.make_writable(above)
            temporary = name + b".infloop-" + secrets.token_hex(4).encode()
            if stat.S_ISLNK(file.mode):
                os.symlink(file.content, temporary, dir_fd=above)
            else:
                descriptor = os.open(temporary, beneath.CREATE_FILE, 0o600, dir_fd=above)
                with os.fdopen(descriptor, "wb") as writing:
                    writing.write(file.content)
                    os.fchmod(writing.fileno(), stat.S_IMODE(file.mode))
            if os.geteuid() == 0:
                os.chown(temporary, *file.owner, dir_fd=above, follow_symlinks=False)
            os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)

    def _exists(self, path: bytes) -> bool:
        return beneath.lstat(self._top, path) is not None

    def _has_parent(self, path: bytes) -> bool:
        above = path.rpartition(b"/")[0]
        return not above or self._exists(above)


def _walk(top: int, root: str, excluded: str) -> Iterator[tuple[bytes, int, list[bytes]]]:
    """Yield every directory beneath one, except inside `.git`: its path, descriptor and entries."""

    def enter(above: int, path: bytes, depth: int) -> Iterator[tuple[bytes, int, list[bytes]]]:
        folders, names = [], []
        with os.scandir(above) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                names.append(name)
                if name != _GIT and entry.is_dir(follow_symlinks=False):
                    folders.append(name)
        yield path, above, names
        for name in folders if depth < MAX_DEPTH else ():
            whole = _join(path, name)
            if f"{root}/{os.fsdecode(whole)}" != excluded:
                with suppress(OSError), beneath.open_directory(above, name) as inside:
                    yield from enter(inside, whole, depth + 1)

    return enter(top, b"", 0)


def _scan_git(above: int, *, inside: bool) -> GitEntry:
    status = os.stat(_GIT, dir_fd=above, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return GitEntry(_identity(status), {b"": _read_file(above, _GIT, status)})
    return _scan_repository(above, _GIT) if inside else GitEntry(_identity(status))


def _scan_repository(above: int, path: bytes) -> GitEntry:
    files: dict[bytes, GitFile] = {}
    # A file that cannot be read is left out, so it differs from one that was readable before.
    with suppress(OSError), beneath.open_directory(above, path) as folder:
        files.update(_control_files(folder, b"", 0))
    status = beneath.lstat(above, path)
    assert status
    return GitEntry(_identity(status), files)


def _control_files(folder: int, path: bytes, depth: int) -> Iterator[tuple[bytes, GitFile]]:
    """Yield the control files of a repository, its submodules and its worktrees."""
    with os.scandir(folder) as listing:
        names = [os.fsencode(entry.name) for entry in listing]
    for name in names:
        whole = _join(path, name)
        status = beneath.lstat(folder, name)
        if status is None:  # removed meanwhile, such as a lock file of another git
            continue
        if not stat.S_ISDIR(status.st_mode):
            if stat.S_ISLNK(status.st_mode) or _is_control_file(whole):
                with suppress(FileNotFoundError):
                    yield whole, _read_file(folder, name, status)
        elif depth < MAX_DEPTH and (name not in _DATA_DIRECTORIES or b"hooks" in path.split(b"/")):
            # Of the objects, only the list of alternate object directories matters.
            deeper = _join(name, b"info") if name == b"objects" else name
            with suppress(OSError), beneath.open_directory(folder, deeper) as inside:
                yield from _control_files(inside, _join(path, deeper), depth + 1)


def _is_control_file(path: bytes) -> bool:
    *above, name = path.split(b"/")
    in_info = above[-1:] == [b"info"] and name in _CONTROL_NAMES_IN_INFO
    return in_info or name in _CONTROL_NAMES or b"hooks" in above


def _read_file(above: int, name: bytes, status: os.stat_result) -> GitFile:
    owner = (status.st_uid, status.st_gid)
    if stat.S_ISLNK(status.st_mode):
        return GitFile(status.st_mode, owner, os.readlink(name, dir_fd=above))
    if not stat.S_ISREG(status.st_mode):
        return GitFile(status.st_mode, owner, b"")
    try:
        file = os.open(name, beneath.OPEN_FILE, dir_fd=above)
    except PermissionError:
        return GitFile(status.st_mode, owner, b"")
    with os.fdopen(file, "rb") as reading:
        return GitFile(status.st_mode, owner, reading.read(_MAX_FILE_BYTES))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _join(above: bytes, name: bytes) -> bytes:
    return b"/".join(filter(None, (above, name)))


def _quoted(path: bytes) -> str:
    return repr(printable(os.fsdecode(path)))
