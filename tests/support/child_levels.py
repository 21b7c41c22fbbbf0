"""One way to run a child at any level, never as root."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.guard import GuardSandbox
from infloop.sandbox.levels.host import HostSandbox
from support.canaries import USER
from support.confinement import need_bubblewrap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from infloop.sandbox.base import Sandbox

LEVELS = ("host", "guard", "sandbox")


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
        sandbox = GuardSandbox(str(scratch), user=USER)
    else:
        sandbox = HostSandbox(user=USER)
    try:
        yield sandbox
    finally:
        await sandbox.close()
        assert list(scratch.iterdir()) == []
