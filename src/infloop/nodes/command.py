"""Node type `command`: runs a shell line that must succeed.

A condition of kind command runs its line in the same way, and makes a verdict of the exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.model.values import JsonObject, as_text
from infloop.nodes.base import Outcome, failed, tail, whole_number
from infloop.policy.command_time import time_limit
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from infloop.nodes.base import StepContext
    from infloop.sandbox.base import ChildResult

TIMEOUT_MS = 600_000
TAIL_CHARS = 8_000
# What a shell exits with when a program cannot be executed, and when there is none.
_CANNOT_RUN = frozenset({126, 127})


async def perform(step: StepContext, config: JsonObject) -> Outcome:
    """Run the command; anything but exit code 0 leaves by `error`."""
    if not as_text(config.get("cmd")).strip():
        return failed("the command is empty")
    cwd = await step.directory(config.get("cwd"))
    worktree = await step.worktree(config, cwd)
    cwd = worktree or cwd
    async with step.workspace.snapshots(cwd) as snapshots:
        finished = await run_command(step, config, cwd=cwd, default_timeout_ms=TIMEOUT_MS)
    child = finished.child
    outputs = finished.outputs | {"durationMs": child.duration_ms, "timedOut": child.timed_out}
    if worktree:
        outputs["worktreePath"] = worktree
    if not finished.failure:
        return Outcome("next", outputs, tree=snapshots.tree)
    said = tail(child.stderr) or tail(child.stdout)
    reason = f"the command failed: {finished.failure}{f': {said}' if said else ''}"
    return failed(reason, **outputs)._replace(tree=snapshots.tree)


class FinishedCommand(NamedTuple):
    """How a command ended; `failure` says why it did not succeed."""

    child: ChildResult
    failure: str

    @property
    def outputs(self) -> JsonObject:
        """What it printed, and its exit code."""
        child = self.child
        return {
            "stdout": child.stdout,
            "stderr": child.stderr,
            "tail": tail(f"{child.stdout}{child.stderr}", TAIL_CHARS),
            "exitCode": child.exit_code,
        }

    @property
    def cannot_run(self) -> bool:
        """Whether the shell found no program, or one that it could not execute."""
        return self.child.exit_code in _CANNOT_RUN


async def run_command(
    step: StepContext,
    command: JsonObject,
    *,
    cwd: str,
    default_timeout_ms: int,
    stdin: bytes | None = None,
) -> FinishedCommand:
    """Run the shell line of a configuration, with its environment and within its time."""
    declared = command.get("env")
    extra = (
        {name: as_text(value) for name, value in declared.items()}
        if isinstance(declared, dict)
        else {}
    )
    timeout_ms = whole_number(command.get("timeoutMs"), default_timeout_ms)
    limit = time_limit(timeout_ms, step.max_command_ms)
    child = await step.sandbox().run(
        ChildRequest(
            argv=("/bin/sh", "-c", as_text(command.get("cmd"))),
            cwd=cwd,
            env=step.environment(extra),
            stdin=stdin,
            timeout_ms=limit.ms,
            max_output_bytes=step.max_output_bytes,
        ),
        on_output=lambda stream, piece: step.write_output(piece, stream),
    )
    if child.error:
        failure = child.error
    elif child.timed_out:
        failure = f"command timed out after {limit.ms}ms{limit.note}"
    elif child.exit_code is None:
        failure = f"killed by signal {child.signal}{child.hint_suffix}"
    elif child.exit_code != 0:
        failure = f"exit {child.exit_code}{child.hint_suffix}"
    else:
        failure = ""
    return FinishedCommand(child, failure)
