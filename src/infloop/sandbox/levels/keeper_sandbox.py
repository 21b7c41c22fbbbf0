"""Base class of all isolation levels: children run under keepers, from a program that exists."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from infloop.sandbox.base import ChildResult
from infloop.sandbox.promises import AT_EVERY_LEVEL

if TYPE_CHECKING:
    from infloop.model.isolation import Level
    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.keepers.pool import KeeperPool
    from infloop.sandbox.promises import Promise


class SandboxOptions(msgspec.Struct, frozen=True):
    """What every level needs to know about this machine.

    - `scratch`: children get private directories in it. Their user must be able to enter it.
    - `hidden`: directories that children never see.
    - `user`: the uid and gid of children, if root has named a user for them.
    """

    scratch: str
    hidden: tuple[str, ...] = ()
    user: tuple[int, int] | None = None


class KeeperSandbox(ABC):
    """One isolation level. A subclass sets its name and its traits, and implements two methods.

    `base.Sandbox` explains the traits. With `confines_root` children of root need no other user.
    """

    level: ClassVar[Level]
    confines: ClassVar[bool] = True
    confines_root: ClassVar[bool] = False
    own_network: ClassVar[bool] = False
    own_mounts: ClassVar[bool] = False
    shared_process_limit: ClassVar[bool] = False
    promises: ClassVar[frozenset[Promise]] = AT_EVERY_LEVEL

    _pool: KeeperPool

    @classmethod
    @abstractmethod
    def open(cls, options: SandboxOptions) -> Self:
        """Return a sandbox of this level.

        Raises MissingPart, naming what this machine lacks, and SettingsError where children would
        run as root and the level confines, but not root.
        """

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What this level does not promise on this machine, as sentences."""
        return ()

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child until it ends; see `Sandbox.run`."""
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
        """Run a child whose program was found, confined as this level confines."""

    async def close(self) -> None:
        """End every child and every keeper."""
        await self._pool.close()


def find_program(name: str, path: str) -> str | None:
    """Return the path of the program `name` on `path`; a name with a slash is returned as it is.

    Relative and empty entries of `path` are skipped: a file in the child's working directory could
    otherwise take the place of a program.
    """
    if "/" in name:
        return name
    for directory in path.split(os.pathsep):
        candidate = f"{directory}/{name}"
        if (
            directory.startswith("/")
            and os.access(candidate, os.X_OK)
            and os.path.isfile(candidate)  # noqa: PTH113  (called thousands of times a second)
        ):
            return candidate
    return None
