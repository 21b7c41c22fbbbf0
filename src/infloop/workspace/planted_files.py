"""What a child may not leave in repositories that are not its own: files that git acts upon.

A person who later runs git there would run what the child has written: as a hook, a file system
monitor, a filter, or in a repository that another file leads to. So the repositories beneath a
directory are looked at before and after. What git acts upon is then put back as it was; what the
child left in its place, and any repository that is new, gets a name that means nothing to git.
Nothing is deleted.
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
from infloop.workspace.snapshots.walk import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infloop.workspace.threads import Stop

_LARGEST = 64 << 20
_GIT = b".git"
_ACTED_UPON = frozenset({b"config", b"config.worktree", b"commondir", b"gitdir"})
_IN_INFO = frozenset({b"attributes", b"alternates", b"http-alternates"})
_ONLY_DATA = frozenset({b"refs", b"logs", b"lfs"})


class Held(NamedTuple):
    """A file or a link that git acts upon; `content` of a link is where it leads."""

    mode: int
    owner: tuple[int, int]
    content: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """Something named `.git`: which one it is, and what of it git acts upon.

    If it is not a directory, that is itself, under an empty name.
    """

    identity: tuple[int, int]
    held: dict[bytes, Held] = field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        """Whether it is a repository, and not a file or link that leads to one."""
        return b"" not in self.held


Repositories: TypeAlias = dict[bytes, Found]
"""All that is named `.git` beneath a directory, by its path."""


def look(root: Path, ours: Path, stop: Stop, *, inside: bool, most: int) -> Repositories:
    """Return the repositories beneath `root`; raise StepError if it has more than `most` entries.

    Without `inside`, what is in those that are directories is left out. The directory `ours`, if
    it is there, is not looked into.
    """
    found: Repositories = {}
    with beneath.opened(root) as top:
        left = most
        for path, above, names in _folders(top, str(root), str(ours)):
            stop.check()
            left -= len(names)
            if left < 0:
                raise StepError(f"there are more than {most} files in {str(root)!r}")
            if _GIT in names:
                with suppress(FileNotFoundError):
                    found[_join(path, _GIT)] = _look_at(above, inside=inside)
    return found


def put_right(root: Path, before: Repositories, after: Repositories) -> list[str]:
    """Undo what a child did to repositories that are not its own; return what that was.

    Raises OSError if it cannot be undone.
    """
    with beneath.opened(root) as top:
        return list(_Righting(top, before, after).run())


class _Righting:
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
                yield f"{_shown(path)} is new: {self._set_aside(path)}"
            elif now.is_folder:
                yield from self._compare(path, old, now)
            elif old.held != now.held:
                yield f"{_shown(path)} was changed: {self._set_aside(path)}"
        for path, old in self._before.items():
            if old.is_folder:
                yield from self._bring_back(path, old, here.get(old.identity))
            elif not self._is_there(path) and self._has_parent(path):
                self._write(path, old.held[b""])
                yield f"{_shown(path)} is as it was again"

    def _compare(self, path: bytes, old: Found, now: Found) -> Iterator[str]:
        names = sorted(old.held.keys() | now.held.keys())
        differing = [name for name in names if old.held.get(name) != now.held.get(name)]
        for name in differing:
            whole = _join(path, name)
            if self._is_there(whole):
                yield f"{_shown(whole)} was written: {self._set_aside(whole)}"
        for name in differing:
            if name in old.held:
                self._write(_join(path, name), old.held[name])
                yield f"{_shown(_join(path, name))} is as it was again"

    def _bring_back(self, path: bytes, old: Found, now: bytes | None) -> Iterator[str]:
        """Move a repository back that was moved away from where it belongs."""
        if self._is_there(path) or not self._has_parent(path):
            return
        now = now or self._search(old.identity)
        if now is None:
            yield f"{_shown(path)} is gone"
            return
        with (
            beneath.parent(self._top, now) as (source, name),
            beneath.parent(self._top, path) as (target, last),
        ):
            os.rename(name, last, src_dir_fd=source, dst_dir_fd=target)
        moved = _look_at_folder(self._top, path)
        yield f"{_shown(path)} had been moved to {_shown(now)}, and is back"
        if old.held:
            yield from self._compare(path, old, moved)

    def _search(self, identity: tuple[int, int]) -> bytes | None:
        for path, above, names in _folders(self._top, "", "none"):
            for name in names:
                with suppress(FileNotFoundError):
                    if _identity(os.stat(name, dir_fd=above, follow_symlinks=False)) == identity:
                        return _join(path, name)
        return None

    def _set_aside(self, path: bytes) -> str:
        with beneath.parent(self._top, path) as (above, name):
            beneath.make_writable(above)
            with suppress(FileNotFoundError):  # another run works there too, and was quicker
                os.rename(name, name + self._suffix, src_dir_fd=above, dst_dir_fd=above)
        return f"it is called {_shown(path + self._suffix)} now"

    def _write(self, path: bytes, held: Held) -> None:
        beneath.make_folders(self._top, path.rpartition(b"/")[0])
        with beneath.parent(self._top, path) as (above, name):
            beneath.make_writable(above)
            unseen = name + b".infloop-" + secrets.token_hex(4).encode()
            if stat.S_ISLNK(held.mode):
                os.symlink(held.content, unseen, dir_fd=above)
            else:
                file = os.open(unseen, beneath.CREATE, 0o600, dir_fd=above)
                with os.fdopen(file, "wb") as writing:
                    writing.write(held.content)
                    os.fchmod(writing.fileno(), stat.S_IMODE(held.mode))
            if os.geteuid() == 0:
                os.chown(unseen, *held.owner, dir_fd=above, follow_symlinks=False)
            os.rename(unseen, name, src_dir_fd=above, dst_dir_fd=above)

    def _is_there(self, path: bytes) -> bool:
        return beneath.look(self._top, path) is not None

    def _has_parent(self, path: bytes) -> bool:
        above = path.rpartition(b"/")[0]
        return not above or self._is_there(above)


def _folders(top: int, root: str, ours: str) -> Iterator[tuple[bytes, int, list[bytes]]]:
    """Give every directory beneath one, but those in a `.git`: its path, itself, what is in it."""

    def enter(above: int, path: bytes, depth: int) -> Iterator[tuple[bytes, int, list[bytes]]]:
        folders, names = [], []
        with os.scandir(above) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                names.append(name)
                if name != _GIT and entry.is_dir(follow_symlinks=False):
                    folders.append(name)
        yield path, above, names
        for name in folders if depth < DEEPEST else ():
            whole = _join(path, name)
            if f"{root}/{os.fsdecode(whole)}" != ours:
                with suppress(OSError), beneath.folder(above, name) as inside:
                    yield from enter(inside, whole, depth + 1)

    return enter(top, b"", 0)


def _look_at(above: int, *, inside: bool) -> Found:
    status = os.stat(_GIT, dir_fd=above, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return Found(_identity(status), {b"": _held(above, _GIT, status)})
    return _look_at_folder(above, _GIT) if inside else Found(_identity(status))


def _look_at_folder(above: int, path: bytes) -> Found:
    held: dict[bytes, Held] = {}
    # What cannot be read is not held, and so it differs from what could.
    with suppress(OSError), beneath.folder(above, path) as folder:
        held.update(_acted_upon(folder, b"", 0))
    status = beneath.look(above, path)
    assert status
    return Found(_identity(status), held)


def _acted_upon(folder: int, path: bytes, depth: int) -> Iterator[tuple[bytes, Held]]:
    """Give what git acts upon in a repository, and in those of its submodules and worktrees."""
    with os.scandir(folder) as listing:
        names = [os.fsencode(entry.name) for entry in listing]
    for name in names:
        whole = _join(path, name)
        status = beneath.look(folder, name)
        if status is None:  # a lock of somebody else's git, say
            continue
        if not stat.S_ISDIR(status.st_mode):
            if stat.S_ISLNK(status.st_mode) or _is_acted_upon(whole):
                with suppress(FileNotFoundError):
                    yield whole, _held(folder, name, status)
        elif depth < DEEPEST and (name not in _ONLY_DATA or b"hooks" in path.split(b"/")):
            # Of objects, only what says where there are more.
            deeper = _join(name, b"info") if name == b"objects" else name
            with suppress(OSError), beneath.folder(folder, deeper) as inside:
                yield from _acted_upon(inside, _join(path, deeper), depth + 1)


def _is_acted_upon(path: bytes) -> bool:
    *above, name = path.split(b"/")
    in_info = above[-1:] == [b"info"] and name in _IN_INFO
    return in_info or name in _ACTED_UPON or b"hooks" in above


def _held(above: int, name: bytes, status: os.stat_result) -> Held:
    owner = (status.st_uid, status.st_gid)
    if stat.S_ISLNK(status.st_mode):
        return Held(status.st_mode, owner, os.readlink(name, dir_fd=above))
    if not stat.S_ISREG(status.st_mode):
        return Held(status.st_mode, owner, b"")
    try:
        file = os.open(name, beneath.READ, dir_fd=above)
    except PermissionError:
        return Held(status.st_mode, owner, b"")
    with os.fdopen(file, "rb") as reading:
        return Held(status.st_mode, owner, reading.read(_LARGEST))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _join(above: bytes, name: bytes) -> bytes:
    return b"/".join(filter(None, (above, name)))


def _shown(path: bytes) -> str:
    return repr(printable(os.fsdecode(path)))
