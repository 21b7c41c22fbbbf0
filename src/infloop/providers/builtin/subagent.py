"""The tool `subagent`: an agent starts another one for a part of its task.

Rules
  * A sub-agent has the tools and the policies of its parent, or fewer; never more.
  * It has the same model, the same limit of turns and the same ledger.
  * Sub-agents may start others, up to `MAX_DEPTH` of them below each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infloop.model.capabilities import Need
from infloop.policy.tool_policy import INHERITED_RULES, ToolPolicy
from infloop.providers.builtin.conversation import SUBAGENT, Conversation, Turns
from infloop.providers.builtin.instructions import INSTRUCTIONS
from infloop.tools.base import Arguments, Tool, ToolError, ToolFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.providers.builtin.models import Emit, OpenModel
    from infloop.tools.gate import Gate

MAX_DEPTH = 2


class SubagentArguments(Arguments, frozen=True):
    """task: what the sub-agent should do. tools: the only tools that it has; yours if missing."""

    task: str
    tools: tuple[str, ...] | None = None


class Subagents(ToolFamily):
    """The sub-agents of one agent. They work one after the other, as all calls do."""

    def __init__(self, model: OpenModel, emit: Emit, turns: Turns) -> None:
        self._model = model
        self._emit = emit
        self._turns = turns
        self._gates: list[Gate] = []
        self._tool = SubagentTool(self)

    def attach(self, gate: Gate) -> None:
        """Set the gate of the agent itself."""
        self._gates = [gate]

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        return (self._tool,)

    async def work(self, task: str, tools: Sequence[str] | None) -> str:
        """Let a sub-agent work; return its answer."""
        if len(self._gates) > MAX_DEPTH:
            raise ToolError(
                "too-deep", f"there are {MAX_DEPTH} sub-agents below each other already"
            )
        policy = ToolPolicy(INHERITED_RULES, None if tools is None else frozenset(tools))
        gate = self._gates[-1].narrowed(policy)
        self._gates.append(gate)
        try:
            conversation = Conversation(
                self._model, gate, self._emit, self._turns, INSTRUCTIONS, is_subagent=True
            )
            done = await conversation.run(task)
        finally:
            self._gates.pop()
        if done.error:
            raise ToolError("failed", f"the sub-agent failed: {done.error}")
        return done.result or "the sub-agent said nothing"


class SubagentTool(Tool[SubagentArguments]):
    """Starts a sub-agent."""

    name = SUBAGENT
    description = (
        "Let another agent do a part of your task in the same directory and return its answer. It "
        "sees nothing of this conversation: the task must say everything it needs."
    )
    arguments = SubagentArguments

    def __init__(self, subagents: Subagents) -> None:
        self._subagents = subagents

    def needs(self, arguments: SubagentArguments) -> Sequence[Need]:
        """Return a harmless need: each call of the sub-agent is decided by itself."""
        return (Need("read", arguments.task),)

    async def run(self, arguments: SubagentArguments) -> str:
        if not arguments.task.strip():
            raise ToolError("bad-arguments", "the task is empty")
        return await self._subagents.work(arguments.task, arguments.tools)
