"""Transport `builtin`: the provider that opens the model, the gate and the session of a prompt."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from infloop.errors import StepError
from infloop.lowlevel.uncancelled import wait_uncancelled
from infloop.policy.leaks.known import Secret
from infloop.providers.base import Done, ProviderNotice, Session
from infloop.providers.builtin.conversation import Conversation, Turns
from infloop.providers.builtin.instructions import INSTRUCTIONS, JUDGE, project_notes
from infloop.providers.builtin.models import open_model
from infloop.providers.builtin.routing import choose_model
from infloop.providers.builtin.sessions import Sessions
from infloop.providers.builtin.subagent import Subagents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from pydantic_ai.messages import ModelMessage

    from infloop.model.provider import BuiltinProvider
    from infloop.providers.base import AnswerPart, Provider, Request
    from infloop.providers.builtin.models import Emit, OpenModel
    from infloop.providers.builtin.sessions import AgentSession
    from infloop.providers.context import AgentServices, ProviderContext


def builtin_provider(manifest: BuiltinProvider, context: ProviderContext) -> Provider:
    """Return the built-in agent."""
    if context.agent is None:
        raise StepError(f"provider {manifest.id!r}: there is no built-in agent here")
    return BuiltinAgent(
        manifest.id, context.agent, context.variables, max_call_ms=context.max_api_call_ms
    )


class BuiltinAgent:
    """Answers prompts with a model and tools; `variables` hold the keys that the tables name."""

    uses_tools = True

    def __init__(
        self,
        id: str,  # noqa: A002  (the interface's name)
        services: AgentServices,
        variables: Mapping[str, str],
        *,
        max_call_ms: int,
    ) -> None:
        self.id = id
        self._services = services
        self._variables = variables
        self._max_call_ms = max_call_ms
        self._sessions = Sessions(services.sessions, services.leaks)

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Answer a prompt; yield the parts as they arise."""
        parts: asyncio.Queue[AnswerPart | None] = asyncio.Queue()
        working = asyncio.create_task(self._work(request, parts.put))
        working.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                yield part
            await working
        finally:
            working.cancel()
            cancelled = await wait_uncancelled(working)
            with suppress(asyncio.CancelledError, Exception):
                working.result()  # raised above, or of no interest to a reader who left
            if cancelled:
                raise asyncio.CancelledError

    async def _work(self, request: Request, emit: Emit) -> None:
        await emit(await self._answer(request, emit))

    async def _answer(self, request: Request, emit: Emit) -> Done:
        config = self._services.config
        profile = request.model or request.profile
        chosen = choose_model(config, profile, self._variables)
        self._services.leaks.add([Secret(f"env:{chosen.key_variable}", chosen.key)])
        async with open_model(
            chosen,
            self._services.reserve,
            max_output_tokens=config.agent.max_output_tokens,
            idle_timeout_ms=request.idle_timeout_ms,
            max_call_ms=self._max_call_ms,
        ) as model:
            if request.kind == "judge":
                return await Conversation(model, None, emit, Turns(1), JUDGE).run(request.prompt)
            for line in _ignored(request):
                await emit(ProviderNotice(line))
            return await self._converse(request, model, emit)

    async def _converse(self, request: Request, model: OpenModel, emit: Emit) -> Done:
        session = await asyncio.to_thread(self._session, request)
        known = _messages(self._sessions, session)
        turns = Turns(self._services.config.agent.max_turns)
        async with AsyncExitStack() as stack:
            subagents = Subagents(model, emit, turns)
            tools = None if request.tools is None else frozenset(request.tools)
            gate, problems = await self._services.open_tools(request.cwd, tools, (subagents,))
            stack.push_async_callback(gate.close)
            for problem in problems:
                await emit(ProviderNotice(f"[tools] {problem}", is_warning=True))
            subagents.attach(gate)

            async def save() -> None:
                stored = _stored(conversation.messages)
                await asyncio.to_thread(self._sessions.save, session, stored)

            conversation = Conversation(model, gate, emit, turns, INSTRUCTIONS, known, on_turn=save)
            await emit(Session(session.id))
            return await conversation.run(await self._prompt(request, is_first=not known))

    def _session(self, request: Request) -> AgentSession:
        if request.session_id:
            return self._sessions.load(request.session_id, request.cwd)
        return self._sessions.begin(request.cwd)

    async def _prompt(self, request: Request, *, is_first: bool) -> str:
        """Return the prompt; in a new session the project's files come before it."""
        prompt = request.prompt.encode("utf-8", "replace").decode()
        notes = await asyncio.to_thread(project_notes, request.cwd) if is_first else ""
        return f"{notes}\n\n{prompt}" if notes else prompt


def _ignored(request: Request) -> list[str]:
    lines = []
    if request.agent:
        lines.append("[agent] the built-in agent has no named agents: 'agent' is left out")
    if request.skip_permissions:
        lines.append(
            "[permissions] the built-in agent asks as its rules say: 'skipPermissions' is left out"
        )
    return lines


def _stored(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    dumped: list[dict[str, Any]] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return dumped


def _messages(sessions: Sessions, session: AgentSession) -> list[ModelMessage]:
    """Return the messages of a session; raise StepError if they cannot be read."""
    if not session.messages:
        return []
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    try:
        return ModelMessagesTypeAdapter.validate_python(session.messages)
    except ValueError as error:
        raise sessions.corrupt(session, error) from None
