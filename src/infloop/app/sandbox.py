"""Opens the sandbox at the isolation level that the operator chose and that works here."""

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
    """A sandbox, and a directory for temporary files that children can enter.

    `unconfined_reason` says why children are not confined; empty if the operator chose that.
    """

    sandbox: Sandbox
    scratch: str
    unconfined_reason: str = ""


@asynccontextmanager
async def open_sandbox(chosen: Settings) -> AsyncIterator[OpenedSandbox]:
    """Open the sandbox, and close it with its temporary files again."""
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
