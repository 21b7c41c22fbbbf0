"""The loop of the built-in agent: ask the model, run its tool calls, give back the results.

Rules
  * Only structured calls are run. JSON in the model's text is text.
  * Every call passes the gate, one after the other. An error goes back to the model.
  * The turns of an agent and its sub-agents are limited together.
  * A call with the same arguments that had the same result twice is not made a third time: the
    agent stops. A call that was not made before starts the count again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import AuditError, GuardError
from infloop.policy.leaks.guard import BLOCKED
from infloop.providers.base import Done, ProviderNotice, Text, Tool, ToolResult, denied
from infloop.providers.builtin.models import ModelFailed
from infloop.providers.http.answers import length_notice
from infloop.providers.json_lines import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ToolCallPart

    from infloop.model.events import ToolKind
    from infloop.providers.builtin.models import Emit, OpenModel
    from infloop.tools.gate import Gate
    from infloop.tools.gate import ToolResult as GateResult

MAX_REPEATS = 2
MAX_SUMMARY_CHARS = 200
SUBAGENT = "subagent"

RULES = "a rule in [[security.approvals.rules]] of infloop.toml can allow it"
NOBODY = (
    "a person would have been asked, and nobody can be: set INFLOOP_APPROVAL_TIMEOUT_MS; or "
    "allow it with a rule in [[security.approvals.rules]] of infloop.toml"
)
LIST = "`tools` of the node, or of [agent] in infloop.toml, lists what it has"


class Turns:
    """How often models may still be asked, by an agent and its sub-agents together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.left = limit

    def take(self) -> bool:
        """Take one; tell whether there was one."""
        self.left -= 1
        return self.left >= 0


class Conversation:
    """One agent's messages, and its loop.

    on_turn  is called when the messages are complete: after the results of a turn, and at the end
    """

    def __init__(
        self,
        model: OpenModel,
        gate: Gate | None,
        emit: Emit,
        turns: Turns,
        instructions: str,
        messages: Sequence[ModelMessage] = (),
        *,
        is_subagent: bool = False,
        on_turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.messages = [*messages]
        self._model = model
        self._gate = gate
        self._emit = emit
        self._turns = turns
        self._instructions = instructions
        self._is_subagent = is_subagent
        self._on_turn = on_turn
        self._needs_newline = self._has_spoken = False
        self._seen: set[str] = set()
        self._results: Counter[tuple[str, str]] = Counter()

    async def run(self, prompt: str) -> Done:
        """Answer a prompt; return the end."""
        from pydantic_ai.messages import UserPromptPart

        self._add([UserPromptPart(prompt)])
        while self._turns.take():
            tools = self._gate.definitions() if self._gate else []
            try:
                response = await self._model.ask(self.messages, tools, self._emit, self._say)
            except ModelFailed as failure:
                *parts, done = failure.parts
                for part in parts:
                    await self._emit(part)
                assert isinstance(done, Done)
                return done
            self.messages.append(response)
            if response.finish_reason == "length":
                await self._emit(length_notice("[agent] max_output_tokens"))
            if not response.tool_calls or self._gate is None:
                await self._turn_over()
                return Done(0, response.text or "")
            stopped = await self._call_tools(self._gate, response)
            await self._turn_over()
            if stopped is not None:
                return stopped
        return Done(
            1,
            error=f"stopped after {self._turns.limit} turns; max_turns of [agent] in infloop.toml "
            "is the limit",
        )

    async def _call_tools(self, gate: Gate, response: ModelResponse) -> Done | None:
        from pydantic_ai.messages import ToolReturnPart

        returned: list[ModelRequestPart] = []
        stopped: Done | None = None
        for call in response.tool_calls:
            if stopped is not None or self._repeats(call):
                stopped = stopped or Done(
                    1,
                    error=f"tool loop detected: {one_line(call.tool_name, 80)} was called with the "
                    f"same arguments and had the same result {MAX_REPEATS} times",
                )
                text, code = "not called: the agent was stopped", "stopped"
            else:
                result = await self._call(gate, call)
                text, code = result.text, result.code
            shown = f"error ({code}): {text}" if code and text != BLOCKED else text
            returned.append(
                ToolReturnPart(
                    tool_name=call.tool_name,
                    content=shown,
                    tool_call_id=call.tool_call_id,
                )
            )
        self._add(returned)
        return stopped

    async def _call(self, gate: Gate, call: ToolCallPart) -> GateResult:
        name = one_line(call.tool_name, 80)
        is_subagent = name == SUBAGENT or self._is_subagent
        kind: ToolKind = "subagent" if is_subagent else "tool"
        summary = one_line(call.args_as_json_str(), MAX_SUMMARY_CHARS)
        await self._emit(Tool(name, summary, kind, call.tool_call_id))
        try:
            result = await gate.call(call.tool_name, _arguments(call))
        except AuditError as error:
            raise GuardError(
                f"a tool call cannot be recorded, so it was not made: {error}"
            ) from None
        self._needs_newline = self._has_spoken
        if result.code == "denied":
            remedy = NOBODY if "nobody can be asked" in result.text else RULES
            why = f"; {result.reason}" if result.reason else ""
            await self._emit(denied(f"{name} {summary}{why}", remedy))
        elif result.code == "tool-not-allowed":
            await self._emit(denied(name, LIST))
        elif result.leaks:
            found = ", ".join(result.leaks)
            await self._emit(
                ProviderNotice(f"[leaks] {name} returned secrets: {found}", is_warning=True)
            )
        shown = f"{result.code}: {result.text}" if result.code else result.text
        answer = one_line(shown, MAX_SUMMARY_CHARS)
        await self._emit(ToolResult(answer, kind, call.tool_call_id, failed=bool(result.code)))
        self._note(call, result)
        return result

    def _repeats(self, call: ToolCallPart) -> bool:
        """Tell whether a call had the same result too often."""
        key = _key(call)
        if key not in self._seen:
            self._seen.add(key)
            self._results.clear()
            return False
        return any(
            times >= MAX_REPEATS for (made, _), times in self._results.items() if made == key
        )

    def _note(self, call: ToolCallPart, result: GateResult) -> None:
        self._results[_key(call), result.text] += 1

    async def _say(self, text: str) -> None:
        if self._is_subagent:
            return
        if self._needs_newline:
            self._needs_newline = False
            text = f"\n{text}"
        self._has_spoken = True
        await self._emit(Text(text))

    def _add(self, parts: Sequence[ModelRequestPart]) -> None:
        from pydantic_ai.messages import ModelRequest

        self.messages.append(ModelRequest(parts=parts, instructions=self._instructions))

    async def _turn_over(self) -> None:
        if self._on_turn is not None:
            await self._on_turn()


def _arguments(call: ToolCallPart) -> bytes:
    if isinstance(call.args, str):
        return call.args.encode("utf-8", "replace")
    return msgspec.json.encode(call.args or {})


def _key(call: ToolCallPart) -> str:
    """Return the same text for equal calls, whatever the order of their arguments."""
    arguments = msgspec.json.encode(call.args_as_dict(), order="sorted")
    return f"{call.tool_name} {arguments.decode()}"
