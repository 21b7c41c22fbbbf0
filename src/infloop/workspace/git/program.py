"""How this package has a program run: it starts none itself, it is given someone who does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Finished(NamedTuple):
    """How a program ended.

    `exit_code` is None when it did not end by itself or never started; `error` then says why.
    `stdout` is whole and exactly what was written: a runner that cannot hold it answers with
    `exit_code` None instead.
    """

    exit_code: int | None
    stdout: bytes
    stderr: str
    error: str = ""


class RunProgram(Protocol):
    """Runs a program to its end with exactly the environment given.

    The program is looked for on the `PATH` of that environment. Cancelled, the program is gone
    before CancelledError leaves.
    """

    async def __call__(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
    ) -> Finished:
        """Run `argv` in `cwd`; without `stdin` it reads nothing."""


class Confine(Protocol):
    """Makes somebody who runs programs that reach nothing but the paths given, and no network."""

    def __call__(self, *, read: Sequence[str], write: Sequence[str]) -> RunProgram:
        """Return a runner for programs that may read and write there."""
