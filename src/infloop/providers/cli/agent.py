"""Transport `cli`: an agent that is a program on this machine.

Each request starts the program, through the sandbox, with nothing of our environment but what
the manifest names. What it prints is read by the manifest's output format and passed on as it
comes. It is over when the program has ended, or

  * some seconds after its result: some programs have told all and never leave;
  * when nothing was heard for the request's idle time: stalled.

Then, and when the reader of the parts leaves or is cancelled, the whole process tree is ended.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from infloop.providers.cli.arguments import command_for
from infloop.providers.cli.claude_stream import ClaudeStream
from infloop.providers.cli.codex_json import CodexJson
from infloop.providers.cli.plain import PlainText
from infloop.providers.cli.process import listen
from infloop.providers.output_reader import Hearing
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from infloop.model.provider import CliProvider
    from infloop.providers.base import Part, Request
    from infloop.providers.output_reader import Reader
    from infloop.sandbox.base import Sandbox

SHIPPED_DIR = Path(__file__).parent.parent / "shipped"
"""The manifests that come with infloop."""

AFTER_RESULT_MS = 5_000

# Our own fixed pattern: one character class.
_NOT_A_NAME = re.compile(r"[^A-Z0-9]")  # noqa: TID251


class ProviderEnvironment(Protocol):
    """Makes the variables of an agent."""

    def __call__(self, passthrough: Sequence[str]) -> dict[str, str]:
        """Return the base variables and those that a manifest names."""


def bin_variable(provider_id: str) -> str:
    """Return the variable in which an operator names a provider's program."""
    return f"INFLOOP_PROVIDER_BIN_{_NOT_A_NAME.sub('_', provider_id.upper())}"


def how_to_help(provider_id: str, program: str) -> str:
    """Return what an operator can do about a program that could not be started."""
    return f"install {program!r}, or name another program in {bin_variable(provider_id)}"


def local_now() -> datetime:
    """Return the time in the zone of this machine."""
    return datetime.now(UTC).astimezone()


class CliAgent:
    """Asks the program of one manifest; `program` takes the place of its `bin`."""

    def __init__(
        self,
        manifest: CliProvider,
        sandbox: Sandbox,
        environment: ProviderEnvironment,
        *,
        program: str = "",
        after_result_ms: int = AFTER_RESULT_MS,
        now: Callable[[], datetime] = local_now,
    ) -> None:
        self.id = manifest.id
        self._manifest = manifest
        self._sandbox = sandbox
        self._environment = environment
        self._program = program
        self._after_result_ms = after_result_ms
        self._now = now

    async def ask(self, request: Request) -> AsyncIterator[Part]:
        """Run the program and yield what it says."""
        command = command_for(self._manifest, request, self._program)
        child = ChildRequest(
            argv=command.argv,
            cwd=request.cwd,
            env=self._environment(self._manifest.env_passthrough),
            stdin=command.stdin,
        )
        heard = Hearing(self._reader(request), request.idle_timeout_ms, self._after_result_ms)
        for notice in command.notices:
            yield notice
        parts = listen(
            self._sandbox,
            child,
            heard,
            conclude=heard.conclusion,
            how_to_help=how_to_help(self.id, command.argv[0]),
        )
        async with aclosing(cast("AsyncGenerator[Part]", parts)):
            async for part in parts:
                yield part

    def _reader(self, request: Request) -> Reader:
        match self._manifest.output_format:
            case "claude-stream-json":
                return ClaudeStream()
            case "codex-json":
                return CodexJson(self._now, request.wanted_model, request.session_usage)
            case "plain":
                return PlainText()
