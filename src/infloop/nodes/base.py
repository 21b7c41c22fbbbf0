"""What a node is given, and what it returns.

A node has no other powers than these: it cannot start a process but through the sandbox, reach a
model but through a provider, or see a variable that the environment does not hand out.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from infloop.errors import StepError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from infloop.model.values import JsonObject
    from infloop.providers.base import Provider
    from infloop.sandbox.base import Sandbox


class Outcome(NamedTuple):
    """How a step ended: the handle it leaves by, its outputs, and why it failed if it did.

    `tree` stands for the files it left behind, if they were looked at. With `until` (milliseconds
    since 1970) it has not ended: it is to be tried again then.
    """

    handle: str
    outputs: JsonObject
    error: str = ""
    tree: str = ""
    until: int = 0


class Environment(Protocol):
    """Makes the variables of a child."""

    def __call__(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the allowed variables, with those that the workflow sets itself."""


class Beginning(NamedTuple):
    """What a worktree is made of; see `infloop.workspace.worktrees.worktree.Worktrees.create`."""

    ref: str = ""
    include_uncommitted: bool = False
    include: tuple[str, ...] = ()


@dataclass(slots=True)
class Watched:
    """What is known of a watched directory when its step is over; see `Outcome.tree`."""

    tree: str = ""


class Workspace(Protocol):
    """The files that a step works on."""

    async def worktree(self, cwd: str, beginning: Beginning) -> str:
        """Return the directory that stands for `cwd` in the node's own worktree; or StepError."""

    def watched(self, directory: str) -> AbstractAsyncContextManager[Watched]:
        """Keep the directory as it is before and after what is done meanwhile."""


class NoWorkspace:
    """For runs whose files nobody looks after."""

    async def worktree(self, cwd: str, beginning: Beginning) -> str:
        """Refuse to make one."""
        raise StepError(
            f"there are no worktrees here: set useWorktree to false to work in {cwd!r} itself"
        )

    def watched(self, directory: str) -> AbstractAsyncContextManager[Watched]:
        """Keep nothing."""
        return nullcontext(Watched())


NO_WORKSPACE = NoWorkspace()


@dataclass(frozen=True, slots=True)
class Interpreters:
    """Programs that run scripts, as the operator named them or as they were found."""

    python: str = "python3"
    typescript: tuple[str, ...] = ()
    typescript_missing: str = "no TypeScript runtime was found"


class Powers(msgspec.Struct, frozen=True):
    """Everything one step may use."""

    run_id: str
    path: str
    node: str
    iteration: int
    attempt: int
    workdir: str
    lets_in: Callable[[str], Awaitable[bool]]
    say: Callable[[str, str], None]
    room: Callable[[], Awaitable[None]]
    sandbox: Callable[[], Sandbox]
    environment: Environment
    provider: Callable[[str], Provider]
    interpreters: Interpreters
    max_output_bytes: int
    max_command_ms: int
    workspace: Workspace = NO_WORKSPACE

    async def directory(self, configured: object) -> str:
        """Return the directory a step works in: its own, or else the run's.

        Raises StepError if there is none, and GuardError if it is not the one that it was.
        """
        if not isinstance(configured, str) or not configured:
            return self.workdir  # which was there when the run began
        directory = str(Path(self.workdir, configured))
        if not await self.lets_in(directory):
            raise StepError(f"cwd {directory!r} is not a directory; create it or change 'cwd'")
        return directory


def failed(reason: str, **outputs: object) -> Outcome:
    """Return an outcome that leaves by `error`."""
    return Outcome("error", {**outputs, "errorMessage": reason}, reason)  # type: ignore[dict-item]


def whole_number(value: object, default: int) -> int:
    """Return a count of milliseconds or the like from a configuration value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return default
    return int(value)


def tail(text: str, limit: int = 300) -> str:
    """Return the end of a text, for an error message."""
    text = text.strip()
    return text if len(text) <= limit else f"…{text[-limit:]}"
