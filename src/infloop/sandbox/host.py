"""Level `host`: children run as the server's user, or as one that root names for them.

They are not confined, though what a process of theirs takes of memory can be bounded, unless it
lifts that itself. What is promised: the environment is exactly the one given, no descriptor
of the server is inherited, and the whole process tree is gone when the run returns.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infloop.sandbox.base import ChildResult
from infloop.sandbox.launch import Launch
from infloop.sandbox.limits import memory_limit
from infloop.sandbox.pool import KeeperPool

if TYPE_CHECKING:
    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted


class HostSandbox:
    """Runs children unconfined, each under a keeper."""

    level = "host"

    def __init__(self, *, user: tuple[int, int] | None = None) -> None:
        """Prepare to run children, as another `user` (uid and gid) when started by root."""
        self._pool = KeeperPool(user=user)

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child to its end; see `Sandbox.run`."""
        if not request.argv:
            return ChildResult(error="no program was given")
        program = find_program(request.argv[0], request.env.get("PATH", os.defpath))
        if program is None:
            return ChildResult(error=f"program {request.argv[0]!r} was not found on PATH")
        limits = memory_limit(request.fence.limits) if request.fence else ()
        launch = Launch(program, request.argv, request.env, request.cwd, limits=limits)
        return await self._pool.run(request, launch, on_output, on_started)

    async def close(self) -> None:
        """End every child and every keeper."""
        await self._pool.close()


def find_program(name: str, path: str) -> str | None:
    """Return where `name` is on `path`; a name with a slash is its own answer.

    Relative and empty entries of `path` are skipped: they would let a file in the child's working
    directory take the place of a program.
    """
    if "/" in name:
        return name
    for directory in path.split(os.pathsep):
        candidate = f"{directory}/{name}"
        if (
            directory.startswith("/")
            and os.access(candidate, os.X_OK)
            and os.path.isfile(candidate)  # noqa: PTH113  (thousands a second, no Path needed)
        ):
            return candidate
    return None
