"""What every isolation level is asked for and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from signal import SIGKILL
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping

    from infloop.sandbox.fence import Fence

Stream: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[Stream, str], None]
OnStarted: TypeAlias = Callable[[int, int], None]

_AS_A_SHELL_SAYS = 128

RESULT_FD = 3
"""The descriptor on which a child that was asked for a result writes it."""


class ChildRequest(msgspec.Struct, frozen=True):
    """One child to run; `env` is its whole environment.

    `stdin` that comes in pieces is written as the child takes it, and then closed. Once the child
    has ended or reads no more, it is left and closed (`aclose`, where it has that); what it raises
    ends the child and leaves the call.

    Of each output stream the first and last bytes are kept, `max_output_bytes` together. Who gives
    a `valve` is shown all of a stream, however long, and may make the child wait. A child
    still running after `timeout_ms` (0: no limit) is ended: TERM, then KILL after `grace_ms`;
    the same grace is given to what outlives the child.

    Where `no_grace` says so when the child is to be ended, it is killed at once.

    `reads` are directories that were made for this child alone and that it reads.

    `fence` is what a level that confines lets it reach; without one that is its directory, and no
    network. At `host` only its memory limit counts.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes | AsyncIterable[bytes] | None = None
    timeout_ms: int = 0
    grace_ms: int = 2_000
    no_grace: Callable[[], bool] | None = None
    max_output_bytes: int = 1 << 20
    valve: Valve | None = None
    want_result: bool = False
    max_result_bytes: int = 8 << 20
    reads: tuple[str, ...] = ()
    fence: Fence | None = None


class ChildResult(msgspec.Struct, frozen=True):
    """How a child ended; by then nothing of its process tree is left.

    `exit_code` is None when the child did not end by itself: it was killed by a signal (its own or
    ours), it timed out, or it never started. `error` says what went wrong beside the child: it
    could not be started, or could not be watched to its end. `hint` is what may have ended it,
    where that cannot be known. `leftovers` counts the processes that outlived the child and had to
    be ended. A text with `*_omitted` above 0 lacks that many bytes where its marker stands.
    `result` is what the child wrote to its result descriptor, None when it was not asked for or was
    larger than allowed (`result_too_large`).
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
        """Whether it was ended by KILL, and not by us; a shell says so of its own child, too."""
        by_kill = self.signal == SIGKILL or self.exit_code == _AS_A_SHELL_SAYS + SIGKILL
        return by_kill and not self.timed_out and not self.error

    @property
    def aside(self) -> str:
        """The hint as the end of a sentence."""
        return f" ({self.hint})" if self.hint else ""


class Valve:
    """Holds one child's output back while whoever listens is behind; the child waits meanwhile.

    What a child has left in its pipes when it ends comes through a closed valve too.
    """

    def __init__(self) -> None:
        self.closed = False
        self._on_turn: Callable[[], None] = lambda: None

    def turn(self, *, closed: bool) -> None:
        """Close the valve or open it."""
        if closed != self.closed:
            self.closed = closed
            self._on_turn()

    def watch(self, on_turn: Callable[[], None]) -> None:
        """Be told when it is turned; for the sandbox."""
        self._on_turn = on_turn


class Sandbox(Protocol):
    """A place where children run, at one isolation level."""

    @property
    def level(self) -> str:
        """The name of the isolation level, as a run shows it."""

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child to its end.

        `on_output` gets each stream's text as it comes, up to `max_output_bytes` unless there is a
        valve; `on_started` gets the process id and its start time in clock ticks since boot, once
        the child has lived a moment. What either raises ends the child and leaves this call.
        Cancelled, the whole tree is gone before CancelledError leaves this call.
        """

    async def close(self) -> None:
        """End every child and everything that was started to look after them."""


class SandboxAround(ABC):
    """A sandbox that does something more around the children of another one."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self.level = inner.level

    @abstractmethod
    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child to its end; see `Sandbox.run`."""

    async def close(self) -> None:  # noqa: B027  (an answer, not a gap)
        """Leave the sandbox behind it open: it is not ours."""
