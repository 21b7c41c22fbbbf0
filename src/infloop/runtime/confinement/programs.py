"""Runs git and other programs for the workspace, in the sandbox like any child.

A program that reads files which an agent has made is confined as agents are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest
from infloop.workspace.git.program import ProgramResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from infloop.sandbox.base import Sandbox
    from infloop.workspace.git.program import Confine, RunProgram

MAX_RESULT_BYTES = 512 << 20
MAX_MEMORY_BYTES = 2 << 30
"""The memory limit of a confined program: it reads files that it cannot trust."""
# The sandbox reads a child's output as text; the result descriptor carries bytes.
TO_RESULT = ("/bin/sh", "-c", 'exec "$@" >&3', "sh")


def programs_in(sandbox: Sandbox) -> RunProgram:
    """Return a function that runs a program in the sandbox and returns exactly what it printed."""
    return partial(_run, sandbox, None)


def limited_in(sandbox: Sandbox) -> RunProgram:
    """Return the same, with limited memory, for programs that read what a stranger sent."""
    access = Access(limits=ResourceLimits(memory_bytes=MAX_MEMORY_BYTES))
    return partial(_run, sandbox, access)


def confined_in(find: Callable[[], Awaitable[Sandbox]]) -> Confine:
    """Return a function that confines programs; `find` is called when one is run."""

    def confine(*, read: Sequence[str], write: Sequence[str]) -> RunProgram:
        limits = ResourceLimits(memory_bytes=MAX_MEMORY_BYTES)
        access = Access(tuple(read), tuple(write), limits=limits)

        async def run(
            argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None
        ) -> ProgramResult:
            return await _run(await find(), access, argv, cwd, env, stdin)

        return run

    return confine


async def _run(
    sandbox: Sandbox,
    access: Access | None,
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    stdin: bytes | None,
) -> ProgramResult:
    done = await sandbox.run(
        ChildRequest(
            argv=(*TO_RESULT, *argv),
            cwd=cwd,
            env=env,
            stdin=stdin,
            want_result=True,
            max_result_bytes=MAX_RESULT_BYTES,
            access=access,
        )
    )
    if done.result is None:
        why = "it printed too much" if done.result_too_large else done.error
        return ProgramResult(None, b"", done.stderr, why or "it was ended")
    return ProgramResult(done.exit_code, done.result, done.stderr, done.error)
