"""Transport `acp`: an agent that speaks the Agent Client Protocol on its standard streams.

- Each request starts the program in the sandbox and sends it one prompt (see `conversation`). Its
  environment has only what the manifest names.
- The manifest's `permissions` decide what the agent may do, or a person where they say so. Each
  decision is recorded.
- The agent's answer to the prompt is the result, however its program exits after that.
- If the caller leaves early, the agent is told to cancel before its process tree is ended.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from infloop.providers.acp.conversation import Conversation
from infloop.providers.acp.files import AgentFiles
from infloop.providers.acp.outbox import Outbox
from infloop.providers.approval_requests import ApprovalRequests
from infloop.providers.base import Done, ProviderNotice
from infloop.providers.json_lines import one_line
from infloop.providers.output_reader import OutputReader
from infloop.providers.process import run_program
from infloop.providers.programs import checked_program, install_hint
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from infloop.model.approval import Question
    from infloop.model.provider import AcpProvider
    from infloop.policy.permissions import AskPerson, PermissionDecision
    from infloop.providers.base import AnswerPart, Provider, Request
    from infloop.providers.context import ProviderContext, ProviderEnvironment
    from infloop.sandbox.base import ChildResult, Sandbox

AFTER_RESULT_MS = 2_000
HANDSHAKE_TIMEOUT_MS = 60_000
CANCEL_GRACE_S = 0.3


def acp_provider(manifest: AcpProvider, context: ProviderContext) -> Provider:
    """Return the provider that runs the program of a manifest."""
    return AcpAgent(
        manifest,
        context.sandbox(manifest),
        context.environment,
        ask_person=context.ask_person,
        program=context.program(manifest.id),
    )


class AcpAgent:
    """Runs the program of one manifest; `program` replaces its `bin`.

    Without `ask_person` nobody is asked: what would need a person's approval is denied.
    """

    def __init__(
        self,
        manifest: AcpProvider,
        sandbox: Sandbox,
        environment: ProviderEnvironment,
        *,
        ask_person: AskPerson | None = None,
        program: str = "",
        after_result_ms: int = AFTER_RESULT_MS,
        handshake_timeout_ms: int = HANDSHAKE_TIMEOUT_MS,
    ) -> None:
        self.id = manifest.id
        self._manifest = manifest
        self._sandbox = sandbox
        self._environment = environment
        self._ask_person = ask_person
        self._program = checked_program(program or manifest.bin)
        self._after_result_ms = after_result_ms
        self._handshake_timeout_ms = handshake_timeout_ms

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Run the program, send the prompt, and yield the parts of its answer."""
        outbox = Outbox()
        files = AgentFiles(request.cwd)
        approvals = ApprovalRequests(self._ask_person) if self._ask_person else None

        def submit(question: Question, then: Callable[[PermissionDecision], AnswerPart]) -> None:
            assert approvals is not None
            approvals.submit(question, lambda ruling: reader.add(then(ruling)))

        conversation = Conversation(
            request, self._manifest, outbox, files, submit if approvals else None
        )
        child = ChildRequest(
            argv=(self._program, *self._manifest.args),
            cwd=request.cwd,
            env=self._environment(self._manifest.env_passthrough),
            stdin=outbox.pieces(),
        )
        reader = OutputReader(
            conversation,
            request.idle_timeout_ms,
            self._after_result_ms,
            lambda: approvals is not None and approvals.is_open,
            requires_result=True,
        )

        def conclude(result: ChildResult | None) -> Done:
            return reader.conclude(None if reader.done else result)

        def check_handshake() -> None:
            if not conversation.is_initialized:
                waited = f"the agent did not answer within {self._handshake_timeout_ms} ms"
                reader.add(conversation.abort(f"{waited}: does it speak ACP, with these args?"))

        async def cancel(running: asyncio.Task[ChildResult]) -> None:
            conversation.cancel()
            await asyncio.wait({running}, timeout=CANCEL_GRACE_S)

        if request.agent.strip():
            yield ProviderNotice(
                f"[agent] {one_line(request.agent, 80)!r} is not used: ACP has no agents"
            )
        conversation.begin()
        timer = asyncio.get_running_loop().call_later(
            self._handshake_timeout_ms / 1000, check_handshake
        )
        parts = run_program(
            self._sandbox,
            child,
            reader,
            conclude=conclude,
            install_hint=install_hint(self.id, self._program),
            on_early_exit=cancel,
        )
        try:
            async with aclosing(cast("AsyncGenerator[AnswerPart]", parts)):
                async for part in parts:
                    yield part
        finally:
            timer.cancel()
            if approvals is not None:
                await approvals.close()
