"""What all levels have in common: children under keepers, started from a program that is there."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from infloop.sandbox.base import ChildResult

if TYPE_CHECKING:
    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.keepers.pool import KeeperPool


class KeptSandbox(ABC):
    """A sandbox whose children are each under a keeper of its pool."""

    _pool: KeeperPool

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
        return await self._run(request, program, on_output, on_started)

    @abstractmethod
    async def _run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        """Run a child whose program was found, as the level does it."""

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
