"""Opens the sandbox at the level that the operator chose and that holds."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.app.process import service_user
from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class OpenedSandbox:
    """Where children live; `why_host` says why they are not confined, unless that was asked for.

    `scratch` is a directory that they can enter, as long as this is open.
    """

    sandbox: Sandbox
    scratch: str
    why_host: str = ""


@asynccontextmanager
async def open_sandbox(chosen: Settings) -> AsyncIterator[OpenedSandbox]:
    """Open the place where children live, at the level that the operator chose and that holds."""
    from infloop.sandbox.levels.choice import choose, open_level
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
    from infloop.sandbox.view.scratch import scratch_directory

    with scratch_directory() as scratch:
        user = service_user(chosen.service_user)
        options = SandboxOptions(scratch, hidden=(str(chosen.data_dir),), user=user)
        chosen.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        choice = await choose(chosen.isolation, options, chosen.data_dir / "levels.json")
        sandbox = open_level(choice.level, options)
        try:
            yield OpenedSandbox(sandbox, scratch, choice.why_unconfined)
        finally:
            await sandbox.close()
