"""The interface through which this package runs programs; the implementation is passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ProgramResult(NamedTuple):
    """The result of a program.

    - `exit_code` is None if the program was killed or did not start; `error` then says why.
    - `stdout` is complete. A runner that cannot hold all of it returns `exit_code` None.
    """

    exit_code: int | None
    stdout: bytes
    stderr: str
    error: str = ""


class RunProgram(Protocol):
    """Runs a program to its end with exactly the given environment.

    The program is searched on the `PATH` of that environment. On cancellation, the program has
    ended before CancelledError is raised.
    """

    async def __call__(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
    ) -> ProgramResult:
        """Run `argv` in `cwd`; without `stdin` its standard input is empty."""


class Confine(Protocol):
    """Makes a runner whose programs can reach only the given paths and no network."""

    def __call__(self, *, read: Sequence[str], write: Sequence[str]) -> RunProgram:
        """Return a runner for programs that may read `read` and write `write`."""
