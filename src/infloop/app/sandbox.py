"""Opens the sandbox at the isolation level that the operator chose and that works here."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from infloop.app.process import service_user
from infloop.app.storage import make_directory
from infloop.errors import SettingsError
from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from infloop.policy.confinement import Confinement
    from infloop.sandbox.base import Sandbox

VERSION_TIMEOUT_MS = 10_000
MAX_VERSION_CHARS = 80


class OpenedSandbox(msgspec.Struct, frozen=True):
    """A sandbox, and a directory for temporary files that children can enter.

    `user` is the uid and gid of children where they are not ours.
    """

    sandbox: Sandbox
    scratch: str
    user: tuple[int, int] | None = None


@asynccontextmanager
async def open_sandbox(chosen: Settings) -> AsyncIterator[OpenedSandbox]:
    """Open the sandbox, and close it with its temporary files again."""
    from infloop.sandbox.levels.choice import choose, open_level
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
    from infloop.sandbox.view.scratch import scratch_directory

    with scratch_directory() as scratch:
        user = service_user(chosen.service_user)
        options = SandboxOptions(scratch, hidden=(str(chosen.data_dir),), user=user)
        make_directory(chosen.data_dir)
        choice = await choose(chosen.isolation, options, chosen.data_dir / "levels.json")
        sandbox = open_level(choice.level, options)
        try:
            yield OpenedSandbox(sandbox, scratch, user=choice.user)
        finally:
            await sandbox.close()


async def confinement_here(chosen: Settings) -> Confinement:
    """Return the level at which a process with these settings would run children."""
    from infloop.policy.confinement import Confinement

    try:
        async with open_sandbox(chosen) as opened:
            return Confinement(opened.sandbox.level)
    except SettingsError as error:
        return Confinement("", str(error))


async def version_of(program: str, arguments: Sequence[str]) -> str:
    """Ask a program for its version; return the first line that it prints, or an empty text."""
    from tempfile import TemporaryDirectory

    from infloop.sandbox.base import ChildRequest
    from infloop.sandbox.levels.host import HostSandbox

    own = HostSandbox()
    # A program may write to its home even for this.
    with TemporaryDirectory(prefix="infloop-version-") as home:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home}
        request = ChildRequest(
            (program, *arguments), "/", environment, timeout_ms=VERSION_TIMEOUT_MS
        )
        try:
            result = await own.run(request)
        finally:
            await own.close()
    lines = result.stdout.split("\n") if result.exit_code == 0 else [""]
    return lines[0].strip()[:MAX_VERSION_CHARS]


async def children_user(chosen: Settings) -> tuple[int, int] | None:
    """Return the uid and gid of children, None if they are ours.

    Started as root, this depends on the level. Where none works, nothing can be run anyway.
    """
    if chosen.service_user or os.geteuid() != 0 or chosen.isolation == "host":
        return service_user(chosen.service_user)
    try:
        async with open_sandbox(chosen) as opened:
            return opened.user
    except SettingsError:
        return None


async def with_some_isolation(chosen: Settings) -> tuple[Settings, str]:
    """Return settings that name level `host` where `auto` finds no level, and why.

    For children that are ours, as in the demo. Others do not run unconfined by themselves.
    """
    try:
        async with open_sandbox(chosen):
            return chosen, ""
    except SettingsError as error:
        return chosen.model_copy(update={"isolation": "host"}), str(error)
