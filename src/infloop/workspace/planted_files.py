"""Undoes changes of a child to git control files in repositories that are not its own.

Control files decide what git executes: hooks, configuration, attributes, links to other
repositories, the `exec` lines of a rebase in progress, and the files that the user's own settings
name (see `infloop.workspace.git.user_settings`). Somebody who runs git there later would execute
what the child wrote.

- The repositories beneath a directory are scanned before and after the child runs.
- Changed control files are restored. A rebase may go on and end.
- The child's versions, and new repositories, get a name that git ignores. Nothing is deleted.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from infloop.errors import StepError
from infloop.workspace import beneath
from infloop.workspace.snapshots.changes import printable
from infloop.workspace.snapshots.walk import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from infloop.workspace.threads import Stop

_MAX_FILE_BYTES = 64 << 20
_GIT = b".git"
_CONTROL_NAMES = frozenset({b"config", b"config.worktree", b"commondir", b"gitdir"})
_CONTROL_NAMES_IN_INFO = frozenset({b"attributes", b"alternates", b"http-alternates"})
_DATA_DIRECTORIES = frozenset({b"refs", b"logs", b"lfs"})
_TODO_LISTS = frozenset({b"git-rebase-todo", b"git-rebase-todo.backup", b"todo"})
_IN_PROGRESS = {
    name: _TODO_LISTS | {b"opts", b"strategy", b"strategy_opts", b"gpg_sign_opt"}
    for name in (b"rebase-merge", b"rebase-apply", b"sequencer")
}
"""What git executes of a rebase, a cherry-pick or a revert that goes on, by directory."""
_MAX_NAMED_FILES = 10_000


class GitFile(NamedTuple):
    """A control file or link; the `content` of a link is its target."""

    mode: int
    owner: tuple[int, int]
    content: bytes


class GitEntry(msgspec.Struct, frozen=True):
    """Something named `.git`: its identity (device and inode) and its control files.

    A `.git` that is not a directory is its own only control file, under an empty name.
    """

    identity: tuple[int, int]
    files: dict[bytes, GitFile] = msgspec.field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        """Whether it is a repository, and not a file or link that points to one."""
        return b"" not in self.files


Repositories: TypeAlias = dict[bytes, GitEntry]
"""Everything named `.git` beneath a directory, by path."""

NamedFiles: TypeAlias = dict[bytes, dict[bytes, GitFile]]
"""Files and directories that the user's git settings name, by path, each with the files in it.

A file is its own only file, under an empty name. What does not exist has no files.
"""


def find_repositories(
    root: Path, excluded: Path, stop: Stop, *, inside: bool, max_entries: int
) -> Repositories:
    """Return the repositories beneath `root`; raise StepError for more than `max_entries` entries.

    With `inside` false, the control files of repository directories are not read. The directory
    `excluded` is not scanned.
    """
    found: Repositories = {}
    with beneath.open_exact_root(root) as top:
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
    with beneath.open_exact_root(root) as top:
        return list(_Undo(top, before, after).run())


def read_named(root: Path, paths: Iterable[bytes]) -> NamedFiles:
    """Return the content of files that the user's settings name; raise StepError for too many."""
    with beneath.open_root(root) as top:
        return {path: _scan_named(top, path) for path in paths}


def undo_named(root: Path, before: NamedFiles) -> list[str]:
    """Undo a child's changes to files that the user's settings name; return what was done.

    Raises OSError or StepError if that fails.
    """
    with beneath.open_root(root) as top:
        return list(_Undo(top, {}, {}).run_named(before))


def rename_untrusted(root: Path, paths: Iterable[bytes]) -> list[str]:
    """Give files a name under which git does not use them; return the new names."""
    renamed: list[str] = []
    with beneath.open_root(root) as top:
        for path in paths:
            with beneath.open_parent(top, path) as (above, name):
                os.rename(name, name + b".untrusted", src_dir_fd=above, dst_dir_fd=above)
            renamed.append(printable(os.fsdecode(path + b".untrusted")))
    return renamed


class _Undo:
    def __init__(self, top: int, before: Repositories, after: Repositories) -> None:
        self._top = top
        self._before = before
        self._after = after
        self._suffix = b".planted-" + secrets.token_hex(3).encode()

    def run_named(self, before: NamedFiles) -> Iterator[str]:
        for path, old in before.items():
            yield from self._clear_way(path)
            yield from self._compare(path, old, _scan_named(self._top, path))

    def _clear_way(self, path: bytes) -> Iterator[str]:
        """Rename what has replaced a directory on the way to a path, such as a link."""
        *above, _ = path.split(b"/")
        for depth in range(1, len(above) + 1):
            part = b"/".join(above[:depth])
            status = beneath.lstat(self._top, part)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                yield f"{_quoted(part)} was written: {self._rename(part)}"

    def run(self) -> Iterator[str]:
        known = {each.identity: each for each in self._before.values() if each.is_folder}
        here = {each.identity: path for path, each in self._after.items() if each.is_folder}
        for path, now in self._after.items():
            old = known.get(now.identity) if now.is_folder else self._before.get(path)
            if old is None or old.is_folder != now.is_folder:
                yield f"{_quoted(path)} is new: {self._rename(path)}"
            elif now.is_folder:
                yield from self._compare(path, old.files, now.files)
            elif old.files != now.files:
                yield f"{_quoted(path)} was changed: {self._rename(path)}"
        for path, old in self._before.items():
            if old.is_folder:
                yield from self._move_back(path, old, here.get(old.identity))
            elif not self._exists(path) and self._has_parent(path):
                self._write(path, old.files[b""])
                yield f"{_quoted(path)} was restored"

    def _compare(
        self, path: bytes, old: dict[bytes, GitFile], now: dict[bytes, GitFile]
    ) -> Iterator[str]:
        names = sorted(old.keys() | now.keys())
        differing = [name for name in names if not _is_same(name, old.get(name), now.get(name))]
        for name in differing:
            whole = _join(path, name)
            if self._exists(whole):
                yield f"{_quoted(whole)} was written: {self._rename(whole)}"
        for name in differing:
            if name in old:
                self._write(_join(path, name), old[name])
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
            yield from self._compare(path, old.files, moved.files)

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
    return in_info or name in _CONTROL_NAMES or b"hooks" in above or _is_in_progress(path)


def _is_in_progress(path: bytes) -> bool:
    """Tell whether a file tells git what to execute when a rebase goes on."""
    *above, name = path.split(b"/")
    return bool(above) and name in _IN_PROGRESS.get(above[-1], ())


def _is_same(path: bytes, old: GitFile | None, now: GitFile | None) -> bool:
    """Tell whether a control file is as it was, or is a rebase that has only gone on or ended."""
    if old == now or not _is_in_progress(path):
        return old == now
    if now is None:
        return True
    is_list = path.rpartition(b"/")[2] in _TODO_LISTS and stat.S_ISREG(now.mode)
    return is_list and _executed(now) <= (_executed(old) if old else set())


def _executed(todo: GitFile) -> set[bytes]:
    """Return the lines of a list of steps that execute a program."""
    lines = (line.split() for line in todo.content.splitlines())
    return {b" ".join(words) for words in lines if words and words[0] in (b"exec", b"x")}


def _scan_named(top: int, path: bytes) -> dict[bytes, GitFile]:
    """Return the files at a path: itself, or those in the directory."""
    status = beneath.lstat(top, path)
    if status is None:
        return {}
    if not stat.S_ISDIR(status.st_mode):
        with beneath.open_parent(top, path) as (above, name):
            return {b"": _read_file(above, name, status)}
    with beneath.open_directory(top, path) as folder:
        files = dict(islice(_files_in(folder, b""), _MAX_NAMED_FILES + 1))
    if len(files) > _MAX_NAMED_FILES:
        raise StepError(f"there are more than {_MAX_NAMED_FILES} files in {_quoted(path)}")
    return files


def _files_in(folder: int, path: bytes) -> Iterator[tuple[bytes, GitFile]]:
    with os.scandir(folder) as listing:
        names = sorted(os.fsencode(entry.name) for entry in listing)
    for name in names:
        status = beneath.lstat(folder, name)
        if status is None:
            continue
        if stat.S_ISDIR(status.st_mode):
            with beneath.open_directory(folder, name) as inside:
                yield from _files_in(inside, _join(path, name))
        else:
            yield _join(path, name), _read_file(folder, name, status)


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
