"""Remove a directory tree of any depth and size, without following links.

The tree may have been written by a child that tries to harm us:

- Every step down is an `openat` that refuses links.
- A tree deeper than `_MAX_OPEN` is cut: the rest is moved to the top and removed from there. So
  depth costs neither descriptors, nor stack, nor paths longer than the kernel takes.
- Directories are read in parts, so many entries do not cost memory.
- Directories without permissions for their owner get them first.
"""

from __future__ import annotations

import itertools
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REFER_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_OPEN = 100
_MAX_ENTRIES = 1000


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove what is at `path`; see `remove_tree_at`."""
    parent, name = os.path.split(os.fspath(path))
    try:
        directory = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_tree_at(directory, name)
    finally:
        os.close(directory)


def remove_tree_at(directory: int, name: str | bytes) -> None:
    """Remove `name` in an open directory: a file, a link itself, or a directory with its content.

    Nothing happens if there is none. No process may still be writing into the tree.
    """
    pending = [os.fsdecode(name)]
    while pending:
        _remove(directory, pending.pop(), directory, pending)


def _remove(directory: int, name: str, top: int, pending: list[str], depth: int = 0) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=directory)
            return
        _make_accessible(directory, name)
        if depth == _MAX_OPEN:
            moved = f".infloop-removed-{secrets.token_hex(8)}"
            os.rename(name, moved, src_dir_fd=directory, dst_dir_fd=top)
            pending.append(moved)
            return
        inside = os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
        try:
            for entry in _entries(inside):
                _remove(inside, entry, top, pending, depth + 1)
        finally:
            os.close(inside)
        os.rmdir(name, dir_fd=directory)


def _make_accessible(directory: int, name: str) -> None:
    """Let the owner read, change and move a directory.

    By descriptor: chmod by name would follow a link that took the place of the directory.
    """
    descriptor = os.open(name, _REFER_DIRECTORY, dir_fd=directory)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{descriptor}", mode | 0o700)  # noqa: PTH101
    finally:
        os.close(descriptor)


def _entries(directory: int) -> Iterator[str]:
    """Yield the names in a directory; the caller removes each before it asks for the next."""
    while True:
        with os.scandir(directory) as found:
            names = [entry.name for entry in itertools.islice(found, _MAX_ENTRIES)]
        if not names:
            return
        yield from names
