"""Level `host`: children run as the server's user, or as one that root names for them.

They are not confined, though what a process of theirs takes of memory can be bounded, unless it
lifts that itself. What is promised: the environment is exactly the one given, no descriptor
of the server is inherited, and the whole process tree is gone when the run returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel.resource_limits import memory_limit
from infloop.sandbox.launch import Launch
from infloop.sandbox.levels.keeper_sandbox import KeptSandbox

if TYPE_CHECKING:
    from infloop.sandbox.base import ChildRequest, ChildResult, OnOutput, OnStarted


class HostSandbox(KeptSandbox):
    """Runs children unconfined, each under a keeper."""

    level = "host"

    def __init__(self, *, user: tuple[int, int] | None = None) -> None:
        """Prepare to run children, as another `user` (uid and gid) when started by root."""
        self._pool = KeeperPool(user=user)

    async def _run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        limits = memory_limit(request.fence.limits) if request.fence else ()
        launch = Launch(program, request.argv, request.env, request.cwd, limits=limits)
        return await self._pool.run(request, launch, on_output, on_started)
