"""Copies files that are not in the commit into a new worktree.

These are the user's uncommitted changes, and files that match given patterns, ignored or not. They
are copied by descriptor on both sides. Links stay links; nested repositories are not copied.
"""

from __future__ import annotations

import fnmatch
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from infloop.errors import UsageError
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.workspace import beneath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_Names: TypeAlias = tuple[str, ...]

_BLOCK = 1 << 20
_DEEPEST = 200


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise UsageError for a pattern that could never match a file of the tree."""
    for pattern in patterns:
        names = pattern.split("/")
        if not pattern or pattern.startswith("/") or {".", "..", ".git"} & set(names):
            raise UsageError(
                f"{pattern!r} cannot be included: give a path or pattern below the repository's "
                "root, such as '.env' or 'config/*.local'"
            )


def matching(root: int, patterns: Sequence[str]) -> list[bytes]:
    """Return the files that match; a matching directory includes everything in it."""
    begun = {tuple(name for name in pattern.split("/") if name) for pattern in patterns}
    return sorted(_matching(root, b"", begun, 0))


def _matching(above: int, path: bytes, begun: set[_Names], depth: int) -> Iterator[bytes]:
    """Yield the matches below a directory; try all patterns together, so it is visited once.

    Several `**` can reach the same directory in very many ways.
    """
    if depth > _DEEPEST:
        return
    for name, mode in _entries(above):
        rests = {rest for pattern in begun for rest in _after(pattern, os.fsdecode(name))}
        if not stat.S_ISDIR(mode):
            if () in rests:
                yield path + name
        elif rests:
            with suppress(OSError), beneath.open_directory(above, name) as inside:
                yield from _matching(inside, path + name + b"/", rests, depth + 1)


def _after(pattern: _Names, name: str) -> list[_Names]:
    """Return the possible rests of a pattern after its start has matched a name.

    An empty rest matches everything below.
    """
    if not pattern:
        return [()]
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        return [pattern, *_after(rest, name)]
    return [rest] if fnmatch.fnmatchcase(name, first) else []


def _entries(directory: int) -> list[tuple[bytes, int]]:
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name != ".git":
                with suppress(FileNotFoundError):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    found.append((os.fsencode(entry.name), mode))
    return sorted(found)


def copy(source: int, target: int, paths: Iterable[bytes]) -> None:
    """Make these paths of `target` equal to those of `source`: absent, a link or a file."""
    looked = [(path, beneath.lstat(source, path)) for path in paths]
    for path, status in looked:
        if status is None or (stat.S_ISDIR(status.st_mode) and not _is_folder(target, path)):
            _remove(target, path)
    for path, status in looked:
        if status and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            _copy(source, target, path, is_link=stat.S_ISLNK(status.st_mode))


def _is_folder(root: int, path: bytes) -> bool:
    status = beneath.lstat(root, path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _remove(root: int, path: bytes) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        with beneath.open_parent(root, path) as (above, name):
            remove_tree_at(above, name)
        while path := path.rpartition(b"/")[0]:
            try:
                with beneath.open_parent(root, path) as (above, name):
                    os.rmdir(name, dir_fd=above)
            except OSError:
                return


def _copy(source: int, target: int, path: bytes, *, is_link: bool) -> None:
    beneath.make_directories(target, path.rpartition(b"/")[0])
    with (
        beneath.open_parent(source, path) as (taken, name),
        beneath.open_parent(target, path) as (above, _),
    ):
        temporary = b".infloop-copy-" + secrets.token_hex(8).encode()
        if is_link:
            os.symlink(os.readlink(name, dir_fd=taken), temporary, dir_fd=above)
        else:
            _copy_file(taken, name, above, temporary)
        with suppress(NotADirectoryError, FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                remove_tree_at(above, name)
        os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)


def _copy_file(taken: int, name: bytes, above: int, temporary: bytes) -> None:
    reading = os.open(name, beneath.OPEN_FILE, dir_fd=taken)
    try:
        writing = os.open(temporary, beneath.CREATE_FILE, 0o600, dir_fd=above)
        try:
            while block := os.read(reading, _BLOCK):
                beneath.write_all(writing, block)
            os.fchmod(writing, stat.S_IMODE(os.fstat(reading).st_mode))
        finally:
            os.close(writing)
    finally:
        os.close(reading)
