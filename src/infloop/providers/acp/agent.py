"""Transport `acp`: any agent that speaks the Agent Client Protocol on its standard streams.

Each request starts the program, through the sandbox, with nothing of our environment but what the
manifest names, and puts one prompt to it (see acp_conversation). What the agent asks leave for is
decided by the manifest's `permissions`, or by a person where they say so, and recorded. Its answer
to the prompt is the result, however its program leaves after that. One that is left early is told
to cancel before its process tree is ended.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from infloop.providers.acp.conversation import Conversation
from infloop.providers.acp.files import AgentFiles
from infloop.providers.acp.outbox import Outbox
from infloop.providers.approval_requests import Asking
from infloop.providers.base import Done, Notice
from infloop.providers.cli.agent import how_to_help
from infloop.providers.cli.arguments import program_of
from infloop.providers.cli.process import listen
from infloop.providers.json_lines import one_line
from infloop.providers.output_reader import Hearing
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from infloop.model.approval import Question
    from infloop.model.provider import AcpProvider
    from infloop.policy.permissions import PermissionDecision
    from infloop.providers.approval_requests import Ask
    from infloop.providers.base import Part, Request
    from infloop.providers.cli.agent import ProviderEnvironment
    from infloop.sandbox.base import ChildResult, Sandbox

AFTER_RESULT_MS = 2_000
GREETING_MS = 60_000
FAREWELL_S = 0.3


class AcpAgent:
    """Asks the program of one manifest; `program` takes the place of its `bin`.

    Without `consult` nobody is asked for leave, and silence denies.
    """

    def __init__(
        self,
        manifest: AcpProvider,
        sandbox: Sandbox,
        environment: ProviderEnvironment,
        *,
        consult: Ask | None = None,
        program: str = "",
        after_result_ms: int = AFTER_RESULT_MS,
        greeting_ms: int = GREETING_MS,
    ) -> None:
        self.id = manifest.id
        self._manifest = manifest
        self._sandbox = sandbox
        self._environment = environment
        self._consult = consult
        self._program = program_of(program or manifest.bin)
        self._after_result_ms = after_result_ms
        self._greeting_ms = greeting_ms

    async def ask(self, request: Request) -> AsyncIterator[Part]:
        """Run the program, put the prompt to it, and yield what it says."""
        outbox = Outbox()
        files = AgentFiles(request.cwd)
        asking = Asking(self._consult) if self._consult else None

        def consult(question: Question, then: Callable[[PermissionDecision], Part]) -> None:
            assert asking is not None
            asking.put(question, lambda ruling: heard.tell(then(ruling)))

        conversation = Conversation(
            request, self._manifest, outbox, files, consult if asking else None
        )
        child = ChildRequest(
            argv=(self._program, *self._manifest.args),
            cwd=request.cwd,
            env=self._environment(self._manifest.env_passthrough),
            stdin=outbox.pieces(),
        )
        heard = Hearing(
            conversation,
            request.idle_timeout_ms,
            self._after_result_ms,
            lambda: asking is not None and asking.is_open,
        )

        def conclude(result: ChildResult | None) -> Done:
            return heard.conclusion(None if heard.ending else result)

        def lose_patience() -> None:
            if not conversation.is_greeted:
                told = f"the agent did not greet us within {self._greeting_ms} ms: does it speak"
                heard.tell(conversation.give_up(f"{told} ACP, with these args?"))

        async def farewell(running: asyncio.Task[ChildResult]) -> None:
            conversation.cancel()
            await asyncio.wait({running}, timeout=FAREWELL_S)

        if request.agent.strip():
            yield Notice(f"[agent] {one_line(request.agent, 80)!r} is not used: ACP has no agents")
        conversation.begin()
        waiting = asyncio.get_running_loop().call_later(self._greeting_ms / 1000, lose_patience)
        parts = listen(
            self._sandbox,
            child,
            heard,
            conclude=conclude,
            how_to_help=how_to_help(self.id, self._program),
            farewell=farewell,
        )
        try:
            async with aclosing(cast("AsyncGenerator[Part]", parts)):
                async for part in parts:
                    yield part
        finally:
            waiting.cancel()
            if asking is not None:
                await asking.close()
