"""The interface of every sandbox: what a caller asks for and what it gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from signal import SIGKILL
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping

    from infloop.sandbox.access import Access
    from infloop.sandbox.promises import Promise

Stream: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[Stream, str], None]
OnStarted: TypeAlias = Callable[[int, int], None]

_SHELL_SIGNAL_BASE = 128

RESULT_FD = 3
"""The descriptor on which a child that was asked for a result writes it."""


class ChildRequest(msgspec.Struct, frozen=True):
    """One child to run.

    - `env` is its whole environment.
    - `stdin` in pieces is written as the child reads it, and then closed. When the child has ended
      or stops reading, the iterator is closed (`aclose`, if it has one). An error that it raises
      ends the child and is raised from the call.
    - `timeout_ms` (0: no limit): a child that still runs then is ended with TERM, and with KILL
      after `grace_ms`. Processes that outlive the child get the same grace. When `no_grace` returns
      true they are killed at once.
    - `max_output_bytes`: of each output stream the first and last bytes are kept, this many
      together. With `flow_control` the caller's `on_output` gets all of a stream and can pause it.
    - `reads` are directories that were made for this child alone, which it reads.
    - `access` is what a level that confines lets it reach. Without it that is its working directory
      and no network. Level `host` uses only the memory limit.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes | AsyncIterable[bytes] | None = None
    timeout_ms: int = 0
    grace_ms: int = 2_000
    no_grace: Callable[[], bool] | None = None
    max_output_bytes: int = 1 << 20
    flow_control: FlowControl | None = None
    want_result: bool = False
    max_result_bytes: int = 8 << 20
    reads: tuple[str, ...] = ()
    access: Access | None = None


class ChildResult(msgspec.Struct, frozen=True):
    """How a child ended; by then no process of its tree is left.

    - `exit_code` is None when the child did not end by itself: a signal killed it (its own or
      ours), it timed out, or it never started.
    - `stdout_omitted` and `stderr_omitted` say how many bytes are missing where the text has its
      marker.
    - `result` is what the child wrote to its result descriptor. It is None when it was not asked
      for, or was larger than allowed (`result_too_large`).
    - `leftovers` counts the processes that outlived the child and had to be ended.
    - `error` says what went wrong outside the child: it could not be started, or its end could not
      be observed.
    - `hint` is a possible reason for its end, where the reason cannot be known.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    duration_ms: int = 0
    stdout: str = ""
    stderr: str = ""
    stdout_omitted: int = 0
    stderr_omitted: int = 0
    result: bytes | None = None
    result_too_large: bool = False
    leftovers: int = 0
    error: str = ""
    hint: str = ""

    @property
    def was_killed(self) -> bool:
        """Whether KILL ended it, and not by us. A shell reports that of its own child as 137."""
        by_kill = self.signal == SIGKILL or self.exit_code == _SHELL_SIGNAL_BASE + SIGKILL
        return by_kill and not self.timed_out and not self.error

    @property
    def hint_suffix(self) -> str:
        """The hint in brackets, to be appended to a sentence."""
        return f" ({self.hint})" if self.hint else ""


class FlowControl:
    """Pauses one child's output while its reader is behind; the child then blocks on its pipe.

    What is left in the pipes when the child ends is delivered although the output is paused.
    """

    def __init__(self) -> None:
        self.paused = False
        self._on_change: Callable[[], None] = lambda: None

    def pause(self) -> None:
        """Read no more output for now."""
        if not self.paused:
            self.paused = True
            self._on_change()

    def resume(self) -> None:
        """Read output again."""
        if self.paused:
            self.paused = False
            self._on_change()

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call back on every change; for the sandbox."""
        self._on_change = on_change


class Sandbox(Protocol):
    """Runs children at one isolation level; the properties are traits of that level."""

    @property
    def level(self) -> str:
        """The name of the isolation level, as a run shows it."""

    @property
    def confines(self) -> bool:
        """Whether a child reaches only what its `access` lists."""

    @property
    def own_network(self) -> bool:
        """Whether each child has a network of its own, so that nobody else reaches its proxy."""

    @property
    def own_mounts(self) -> bool:
        """Whether paths are mounted for each child; a part of a writable one can be read-only."""

    @property
    def shared_process_limit(self) -> bool:
        """Whether the limit on processes counts all processes of the children's user."""

    @property
    def promises(self) -> frozenset[Promise]:
        """What the level promises; `self_check` attacks each of these."""

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child until it ends.

        - `on_output` gets each stream's text as it comes, up to `max_output_bytes` unless the
          request has flow control.
        - `on_started` gets the process id and its start time in clock ticks since boot, once the
          child has run for some milliseconds.
        - An exception of either ends the child and is raised from this call.
        - When this call is cancelled, the whole tree is gone before CancelledError is raised.
        """

    async def close(self) -> None:
        """End every child and every helper process."""


class SandboxWrapper(ABC):
    """A sandbox that adds something to the children of another one."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self.level = inner.level
        self.confines = inner.confines
        self.own_network = inner.own_network
        self.own_mounts = inner.own_mounts
        self.shared_process_limit = inner.shared_process_limit
        self.promises = inner.promises

    @abstractmethod
    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child until it ends; see `Sandbox.run`."""

    async def close(self) -> None:  # noqa: B027  (deliberately empty)
        """Do nothing: the wrapped sandbox belongs to somebody else."""
