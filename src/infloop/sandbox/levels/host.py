"""Level `host`: children run unconfined, as the server's user or as one that root names for them.

What is promised:

- The environment is exactly the one given.
- No descriptor of the server is inherited.
- The whole process tree is gone when the run returns.

The memory of a process can be limited, but the child can raise that limit again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel.resource_limits import memory_limit
from infloop.sandbox.levels.keeper_sandbox import KeeperSandbox
from infloop.sandbox.spawn_request import SpawnRequest

if TYPE_CHECKING:
    from infloop.sandbox.base import ChildRequest, ChildResult, OnOutput, OnStarted
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions


class HostSandbox(KeeperSandbox):
    """Runs children unconfined, each under a keeper."""

    level = "host"
    confines = False

    def __init__(self, *, user: tuple[int, int] | None = None) -> None:
        """Run children as another `user` (uid and gid) if given, which needs root."""
        self._pool = KeeperPool(user=user)

    @classmethod
    def open(cls, options: SandboxOptions) -> Self:
        """Return a sandbox of this level."""
        return cls(user=options.user)

    async def _run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        limits = memory_limit(request.access.limits) if request.access else ()
        spawn = SpawnRequest(program, request.argv, request.env, request.cwd, limits=limits)
        return await self._pool.run(request, spawn, on_output, on_started)
