"""The levels of isolation, opened for tests, and directories that children can use."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import MissingPart
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.guard import GuardSandbox, missing_part
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.trusted_bubblewrap import find_bubblewrap
from support.canaries import USER
from support.parts import missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.sandbox.base import Sandbox

LEVELS = ("host", "guard", "sandbox")


def need_bubblewrap() -> None:
    """Return where level `sandbox` can be had."""
    try:
        find_bubblewrap()
    except MissingPart as error:
        missing(str(error))


def need_guard() -> None:
    """Return where level `guard` can be had."""
    if piece := missing_part():
        missing(f"level 'guard' needs {piece}")


def need_level(level: str) -> None:
    """Return where a level can be had; every machine has `host`."""
    match level:
        case "sandbox":
            need_bubblewrap()
        case "guard":
            need_guard()
        case _:
            assert level == "host"


def give(path: Path) -> Path:
    """Give a file or directory, with all that is in it, to the children's user."""
    if USER:
        for each in (path, *path.rglob("*")):
            os.chown(each, *USER, follow_symlinks=False)
    return path


def new_directory(path: Path) -> Path:
    """Make a directory for the children's user."""
    path.mkdir(parents=True)
    return give(path)


@asynccontextmanager
async def sandbox_at(level: str, parent: Path) -> AsyncIterator[Sandbox]:
    """Open a level; `parent` is a directory that the children's user can enter."""
    scratch = parent / f"scratch-{level}"
    scratch.mkdir(0o711)
    sandbox: Sandbox
    if level == "sandbox":
        need_bubblewrap()
        sandbox = BubblewrapSandbox(user=USER)
    elif level == "guard":
        need_guard()
        sandbox = GuardSandbox(str(scratch), user=USER)
    else:
        sandbox = HostSandbox(user=USER)
    try:
        yield sandbox
    finally:
        await sandbox.close()
        assert list(scratch.iterdir()) == []
