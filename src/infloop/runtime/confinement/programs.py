"""Programs that the workspace asks for, git above all, run in the sandbox like any child.

Those that look into what an agent has made are confined as agents are.
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

LARGEST_ANSWER = 512 << 20
MOST_MEMORY = 2 << 30
"""What a confined program may take: what it looks at was made by somebody else."""
# What a child prints is text to the sandbox; its result descriptor carries bytes.
TO_RESULT = ("/bin/sh", "-c", 'exec "$@" >&3', "sh")


def programs_in(sandbox: Sandbox) -> RunProgram:
    """Return what runs a program in the sandbox and answers with exactly what it printed."""
    return partial(_run, sandbox, None)


def confined_in(find: Callable[[], Awaitable[Sandbox]]) -> Confine:
    """Return what confines programs in a sandbox, which is found when it is first needed."""

    def confine(*, read: Sequence[str], write: Sequence[str]) -> RunProgram:
        limits = ResourceLimits(memory_bytes=MOST_MEMORY)
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
            (*TO_RESULT, *argv),
            cwd,
            env,
            stdin,
            want_result=True,
            max_result_bytes=LARGEST_ANSWER,
            access=access,
        )
    )
    if done.result is None:
        why = "it printed too much" if done.result_too_large else done.error
        return ProgramResult(None, b"", done.stderr, why or "it was ended")
    return ProgramResult(done.exit_code, done.result, done.stderr, done.error)
