"""Which tools the built-in agent gets: families, in the order in which a model sees them.

A family is one line in `FAMILIES`. It is made for each step, with what the step may use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from infloop.policy.tool_policy import DEFAULT_RULES, ToolPolicy
from infloop.tools.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from infloop.model.agent_config import AgentConfig
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.policy.permissions import AskPerson
    from infloop.sandbox.base import Sandbox
    from infloop.tools.base import ToolFamily
    from infloop.tools.gate import RecordCall


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Everything that the families of one step are given.

    directory    the step's working directory: its worktree, if it has one
    sandbox      makes the step's sandbox
    environment  the environment of children
    variables    the operator's own variables, for the keys that the configuration names
    config       the tables of the settings
    state        the folder in which families keep what they must remember
    protected    folders inside the directory that no tool changes
    """

    directory: Path
    sandbox: Callable[[], Sandbox]
    environment: Mapping[str, str]
    variables: Mapping[str, str]
    config: AgentConfig
    state: Path
    protected: tuple[Path, ...] = ()
    max_command_ms: int = 7_200_000
    max_output_bytes: int = 2 << 20


MakeFamily: TypeAlias = "Callable[[ToolContext], ToolFamily]"

FAMILIES: tuple[MakeFamily, ...] = ()
"""All families."""


def open_toolset(
    context: ToolContext,
    own: Sequence[ToolFamily] = (),
    *,
    tools: frozenset[str] | None,
    record: RecordCall,
    leaks: LeakGuard,
    ask: AskPerson | None,
    families: Sequence[MakeFamily] = FAMILIES,
) -> Gate:
    """Return the gate of one agent: its tools are those of all families and `own`.

    The operator's list and `tools` are the only ones that it has. The operator's rules come before
    the default ones.
    """
    config = context.config
    listed = config.agent.tools
    policies = [
        ToolPolicy(
            (*config.security.approvals.rules, *DEFAULT_RULES),
            None if listed is None else frozenset(listed),
        )
    ]
    if tools is not None:
        policies.append(ToolPolicy((*config.security.approvals.rules, *DEFAULT_RULES), tools))
    made = [make(context) for make in families]
    return Gate([*made, *own], policies, record=record, leaks=leaks, ask=ask)
