"""A child's private home and temporary directory, made before it and removed after it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from infloop.sandbox.finishing import to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HOLD_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 1000


class Private(NamedTuple):
    """The two directories, as absolute paths."""

    home: str
    temp: str


@contextlib.asynccontextmanager
async def private_directories(parent: str, owner: tuple[int, int] | None) -> AsyncIterator[Private]:
    """Make both in `parent`, owned by `owner`; nothing of them stays."""
    async with (
        _private_directory(parent, "home-", owner) as home,
        _private_directory(parent, "temp-", owner) as temp,
    ):
        yield Private(home, temp)


@contextlib.asynccontextmanager
async def _private_directory(
    parent: str, prefix: str, owner: tuple[int, int] | None
) -> AsyncIterator[str]:
    directory = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        if owner:
            os.chown(directory, *owner)
        yield directory
    finally:
        try:
            # Usually nothing was left in it.
            os.rmdir(directory)  # noqa: PTH106  (on every child's way, no Path needed)
        except OSError:
            await to_the_end(asyncio.to_thread(remove_tree, directory))


def remove_tree(directory: str) -> None:
    """Remove a directory with all below it, whoever made that, however deep and however many.

    No symbolic link is followed. Nobody may be changing the tree any more. Each directory is moved
    beside the others before it is emptied, so that depth costs neither stack, nor descriptors, nor
    longer paths than the kernel takes.
    """
    top = tempfile.mkdtemp(prefix="removed-", dir=os.path.dirname(directory))  # noqa: PTH120
    beside = os.open(top, _OPEN_DIRECTORY)
    try:
        names = map(str, itertools.count())
        pending = [_move(directory, None, beside, names)]
        for name in pending:
            fd = os.open(name, _OPEN_DIRECTORY, dir_fd=beside)
            try:
                pending += _empty(fd, beside, names)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=beside)
    finally:
        os.close(beside)
        with contextlib.suppress(OSError):  # what could not be removed stays in it
            os.rmdir(top)  # noqa: PTH106  (as above)


def _empty(fd: int, beside: int, names: Iterator[str]) -> list[str]:
    """Empty one directory; return what its own directories are called now."""
    moved: list[str] = []
    while entries := _some_entries(fd):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                moved.append(_move(entry.name, fd, beside, names))
            else:
                os.unlink(entry.name, dir_fd=fd)
    return moved


def _some_entries(fd: int) -> list[os.DirEntry[str]]:
    """Return a few at a time: millions at once would not fit into memory."""
    with os.scandir(fd) as entries:
        return list(itertools.islice(entries, _AT_ONCE))


def _move(directory: str, fd: int | None, beside: int, names: Iterator[str]) -> str:
    """Move a directory beside the others and return its new name."""
    held = os.open(directory, _HOLD_DIRECTORY, dir_fd=fd)
    try:
        # Without these rights its owner could neither move nor open it. By what is held and not by
        # its name, under which somebody may by now have put a link to anything of ours.
        os.chmod(f"/proc/self/fd/{held}", 0o700)  # noqa: PTH101  (as above)
    finally:
        os.close(held)
    name = next(names)
    os.rename(directory, name, src_dir_fd=fd, dst_dir_fd=beside)
    return name
