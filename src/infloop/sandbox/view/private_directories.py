"""A child's private home and temporary directory, made before it and removed after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from infloop.lowlevel.remove_tree import remove_tree
from infloop.lowlevel.uncancelled import run_uncancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


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
            await run_uncancelled(asyncio.to_thread(remove_tree, directory))
