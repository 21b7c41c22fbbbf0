"""Transport `cli`: an agent that is a program on this machine.

Each request starts the program in the sandbox. Its environment has only what the manifest names.
The manifest's output format parses its output, which is passed on as it comes. It is over

  * when the program has ended,
  * some seconds after its result, because some programs never exit, or
  * when nothing was printed for the request's idle timeout: it is stalled.

Then, and when the caller leaves early or is cancelled, the whole process tree is ended.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from infloop.providers.cli.arguments import command_line
from infloop.providers.cli.formats import OUTPUT_FORMATS
from infloop.providers.output_reader import OutputReader
from infloop.providers.prices import PricedProvider
from infloop.providers.process import run_program
from infloop.providers.programs import install_hint
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from infloop.model.provider import CliProvider
    from infloop.providers.base import AnswerPart, Provider, Request
    from infloop.providers.context import ProviderContext, ProviderEnvironment
    from infloop.sandbox.base import Sandbox

AFTER_RESULT_MS = 5_000


def cli_provider(manifest: CliProvider, context: ProviderContext) -> Provider:
    """Return the provider that runs the program of a manifest."""
    agent = CliAgent(
        manifest,
        context.sandbox(manifest),
        context.environment,
        program=context.program(manifest.id),
    )
    price_list = OUTPUT_FORMATS[manifest.output_format].price_list
    return PricedProvider(agent, price_list) if price_list else agent


def local_now() -> datetime:
    """Return the time in the zone of this machine."""
    return datetime.now(UTC).astimezone()


class CliAgent:
    """Runs the program of one manifest; `program` replaces its `bin`."""

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
        self._format = OUTPUT_FORMATS[manifest.output_format]
        self._sandbox = sandbox
        self._environment = environment
        self._program = program
        self._after_result_ms = after_result_ms
        self._now = now

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Run the program and yield the parts of its answer."""
        command = command_line(
            self._manifest, request, self._program, confined=self._sandbox.confines
        )
        child = ChildRequest(
            argv=command.argv,
            cwd=request.cwd,
            env={
                **self._format.environment,
                **self._environment(self._manifest.env_passthrough),
            },
            stdin=command.stdin,
        )
        parser = self._format.parser(request, self._now)
        reader = OutputReader(parser, request.idle_timeout_ms, self._after_result_ms)
        for notice in command.notices:
            yield notice
        parts = run_program(
            self._sandbox,
            child,
            reader,
            conclude=reader.conclude,
            install_hint=install_hint(self.id, command.argv[0]),
        )
        async with aclosing(cast("AsyncGenerator[AnswerPart]", parts)):
            async for part in parts:
                yield part
