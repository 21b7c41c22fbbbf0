"""What a step may use, and what it returns.

A node gets nothing else. It starts processes only in the sandbox, reaches models only through a
provider, and sees only the variables that `environment` returns.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from infloop.errors import StepError
from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from infloop.model.events import NoticeTopic, ToolCall
    from infloop.model.values import JsonObject
    from infloop.policy.permissions import AskPerson
    from infloop.providers.base import Provider
    from infloop.sandbox.base import Sandbox
    from infloop.store.dev_loops import RunningLoop


class Outcome(NamedTuple):
    """How a step ended: the handle it leaves by, its outputs, and the error if it failed.

    `tree` identifies the files that it left behind, if a snapshot was taken. With `until`
    (milliseconds since 1970) the step has not ended: it is tried again at that time.
    """

    handle: str
    outputs: JsonObject
    error: str = ""
    tree: str = ""
    until: int = 0


class Environment(Protocol):
    """Makes the environment of a child."""

    def __call__(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the allowed variables, and those that the workflow sets."""


class WorktreeOptions(NamedTuple):
    """How a worktree is made; see `infloop.workspace.worktrees.worktree.Worktrees.create`.

    Nodes that give the same `name` share one; without a name a node has its own.
    """

    name: str = ""
    ref: str = ""
    include_uncommitted: bool = False
    include: tuple[str, ...] = ()


class TakenSnapshots(msgspec.Struct):
    """The snapshots of a step's directory; `tree` is set when the step is over."""

    tree: str = ""


class Workspace(Protocol):
    """The files that a step works on."""

    async def worktree(self, cwd: str, options: WorktreeOptions) -> str:
        """Return the directory of the worktree that corresponds to `cwd`.

        Raises StepError if there can be none.
        """

    def snapshots(self, directory: str) -> AbstractAsyncContextManager[TakenSnapshots]:
        """Take a snapshot of the directory when the block begins, and one when it ends."""


class NoWorkspace:
    """For runs without worktrees and snapshots."""

    async def worktree(self, cwd: str, options: WorktreeOptions) -> str:
        raise StepError(
            f"there are no worktrees here: set useWorktree to false to work in {cwd!r} itself"
        )

    def snapshots(self, directory: str) -> AbstractAsyncContextManager[TakenSnapshots]:
        return nullcontext(TakenSnapshots())


NO_WORKSPACE = NoWorkspace()


class Interpreters(msgspec.Struct, frozen=True):
    """The programs that run scripts: named by the operator, or found."""

    python: str = "python3"
    typescript: tuple[str, ...] = ()
    typescript_missing: str = "no TypeScript runtime was found"


class WriteOutput(Protocol):
    """Passes output of a step on: a text, its stream, and the tool call that it is about."""

    def __call__(self, text: str, stream: str, tool: ToolCall | None = None, /) -> None: ...


class StepContext(msgspec.Struct, frozen=True):
    """Everything that one step may use.

    allows_directory  says whether a step may work in a directory
    dev_loops         returns the development loops that run now
    write_output      passes output on
    drain             waits until more output can be taken
    warn              adds a warning to the run
    ask_person        returns the function with which to ask a person; None if nobody is asked
    """

    run_id: str
    path: str
    node: str
    iteration: int
    attempt: int
    workdir: str
    allows_directory: Callable[[str], Awaitable[bool]]
    write_output: WriteOutput
    drain: Callable[[], Awaitable[None]]
    sandbox: Callable[[], Sandbox]
    environment: Environment
    provider: Callable[[str], Provider]
    interpreters: Interpreters
    max_output_bytes: int
    max_command_ms: int
    workspace: Workspace = NO_WORKSPACE
    dev_loops: Callable[[], Sequence[RunningLoop]] = tuple
    warn: Callable[[str, NoticeTopic], None] = lambda _message, _topic: None
    ask_person: Callable[[], AskPerson | None] = lambda: None

    async def directory(self, configured: object) -> str:
        """Return the working directory of a step: the configured one, or else the run's.

        Raises StepError if it does not exist, and GuardError if it was replaced by another.
        """
        if not isinstance(configured, str) or not configured:
            return self.workdir  # checked when the run began
        directory = str(Path(self.workdir, configured))
        if not await self.allows_directory(directory):
            raise StepError(f"cwd {directory!r} is not a directory; create it or change 'cwd'")
        return directory

    async def worktree(self, config: JsonObject, cwd: str) -> str:
        """Return the directory in the node's worktree for `cwd`; empty if it works in none."""
        if config.get("useWorktree") is not True:
            return ""
        include = config.get("worktreeInclude")
        options = WorktreeOptions(
            name=as_text(config.get("worktree")).strip(),
            ref=as_text(config.get("worktreeRef")).strip(),
            include_uncommitted=config.get("includeUncommitted") is True,
            include=tuple(map(as_text, include)) if isinstance(include, list) else (),
        )
        return await self.workspace.worktree(cwd, options)


def failed(reason: str, **outputs: object) -> Outcome:
    """Return an outcome that leaves by `error`."""
    return Outcome("error", {**outputs, "errorMessage": reason}, reason)  # type: ignore[dict-item]


def whole_number(value: object, default: int) -> int:
    """Return a whole number from a configuration, or the default for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return default
    return int(value)


def tail(text: str, limit: int = 300) -> str:
    """Return the end of a text, for an error message."""
    text = text.strip()
    return text if len(text) <= limit else f"…{text[-limit:]}"
