"""How the commands of an agent are started, and what starting them needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from infloop.model.capabilities import Need
from infloop.policy.destructive_commands import judge_commands
from infloop.sandbox.base import ChildRequest, FlowControl
from infloop.sandbox.levels.keeper_sandbox import find_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterator, Mapping

    from infloop.model.capabilities import Trait
    from infloop.sandbox.access import Access
    from infloop.sandbox.base import ChildResult, Sandbox

MAX_OUTPUT_BYTES = 128 << 10
"""How much of each output stream is kept: its start and its end."""


class Commands(NamedTuple):
    """What all commands of an agent have in common; the sandbox belongs to the caller.

    - `directory`: the real path of the workspace, in which they start.
    - `env`: their whole environment.
    - `max_command_ms`: the operator's limit for every command.
    - `access`: what they reach at a level that confines; the workspace alone if missing.
    """

    sandbox: Sandbox
    directory: str
    env: Mapping[str, str]
    max_command_ms: int
    access: Access | None = None

    def request(
        self, line: str, timeout_ms: int, stdin: AsyncIterable[bytes] | None = None
    ) -> ChildRequest:
        """Return the request for a shell that runs a line; without `stdin` its input is empty."""
        has_bash = find_program("bash", self.env.get("PATH", os.defpath))
        return ChildRequest(
            argv=("bash" if has_bash else "/bin/sh", "-c", line),
            cwd=self.directory,
            env=self.env,
            stdin=stdin,
            timeout_ms=timeout_ms,
            max_output_bytes=MAX_OUTPUT_BYTES,
            flow_control=FlowControl() if stdin else None,
            access=self.access,
        )

    def needs(self, line: str, *traits: Trait) -> list[Need]:
        """Return what running a line needs: each of its commands is decided on its own."""
        return list(self._needs(line, frozenset(traits)))

    def _needs(self, line: str, traits: frozenset[Trait]) -> Iterator[Need]:
        if not self.sandbox.confines:
            traits |= {"unconfined"}
        for text, reason in judge_commands(line):
            yield Need("execute", text, traits | {"destructive"} if reason else traits)


def ending(result: ChildResult) -> str:
    """Return how a child ended."""
    if result.exit_code is not None:
        return f"exit code {result.exit_code}{result.hint_suffix}"
    return f"killed by signal {result.signal}{result.hint_suffix}"


def printed(result: ChildResult) -> str:
    """Return what a child printed, and what was done about processes that it left."""
    parts = [result.stdout]
    if result.stderr:
        parts.append(f"[standard error]\n{result.stderr}")
    if result.leftovers:
        parts.append(f"[{result.leftovers} processes that it left running were ended]")
    return "\n".join(part.rstrip("\n") for part in parts if part)
