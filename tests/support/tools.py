"""A gate for tests: tools, a policy, an audit log in memory, a person who answers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from infloop.model.capabilities import ToolRule
from infloop.policy.leaks.guard import LeakGuard
from infloop.policy.permissions import PermissionDecision
from infloop.policy.tool_policy import DEFAULT_RULES, ToolPolicy
from infloop.tools.gate import MAX_TEXT_CHARS, Gate
from infloop.tools.shell import Commands, ShellTools
from infloop.tools.workspace import WorkspaceTools, open_workspace
from support.canaries import place
from support.confinement import new_directory, sandbox_at
from support.processes import ENV

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from infloop.lowlevel.link_free import OpenBeneath
    from infloop.model.approval import Question
    from infloop.model.values import JsonObject
    from infloop.policy.permissions import AskPerson
    from infloop.tools.base import ToolFamily
    from infloop.tools.gate import ToolEvent, ToolResult
    from infloop.tools.workspace import Workspace


class AuditEntry(NamedTuple):
    event: ToolEvent
    outcome: str
    details: JsonObject


class AuditList:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def __call__(self, event: ToolEvent, outcome: str, details: JsonObject) -> None:
        self.entries.append(AuditEntry(event, outcome, details))


class Person:
    """Gives the same answer to every question, and remembers the questions."""

    def __init__(self, *, allows: bool) -> None:
        self.allows = allows
        self.questions: list[Question] = []

    async def __call__(self, question: Question) -> PermissionDecision:
        self.questions.append(question)
        return PermissionDecision(self.allows, "the person said so")


@asynccontextmanager
async def gate_for(
    *families: ToolFamily,
    rules: Sequence[ToolRule] = (),
    ask: AskPerson | None = None,
    record: AuditList | None = None,
    leaks: LeakGuard | None = None,
    max_text_chars: int = MAX_TEXT_CHARS,
) -> AsyncIterator[Gate]:
    """Put tools behind a gate with the default rules, after `rules`; close it at the end."""
    gate = Gate(
        families,
        [ToolPolicy((*rules, *DEFAULT_RULES))],
        record=record or AuditList(),
        leaks=leaks or LeakGuard(),
        ask=ask,
        max_text_chars=max_text_chars,
    )
    try:
        yield gate
    finally:
        await gate.close()


class FileBench(NamedTuple):
    """The file tools behind a gate."""

    gate: Gate
    workspace: Workspace
    audit: AuditList
    directory: Path

    async def text(self, tool: str, **arguments: object) -> str:
        """Call a tool that must succeed; return its text."""
        result = await self.gate.call(tool, arguments)  # type: ignore[arg-type]
        assert not result.code, (result.code, result.text)
        return result.text

    async def code(self, tool: str, **arguments: object) -> str:
        """Call a tool; return the code of its failure, or nothing."""
        result = await self.gate.call(tool, arguments)  # type: ignore[arg-type]
        assert not result.code or str(self.directory.parent) not in result.text
        return result.code


@asynccontextmanager
async def file_bench(
    directory: Path,
    *,
    rules: Sequence[ToolRule] = (),
    ask: AskPerson | None = None,
    opener: OpenBeneath | None = None,
    private: Sequence[Path] = (),
) -> AsyncIterator[FileBench]:
    """Open the file tools on a workspace."""
    directory.mkdir(exist_ok=True)
    audit = AuditList()
    chosen = {"opener": opener} if opener else {}
    with open_workspace(directory, private=private, **chosen) as workspace:
        tools = WorkspaceTools(workspace)
        async with gate_for(tools, rules=rules, ask=ask, record=audit) as gate:
            yield FileBench(gate, workspace, audit, directory)


class ShellBench(NamedTuple):
    """The tools for commands behind a gate."""

    gate: Gate
    directory: Path
    outside: Path
    audit: AuditList

    async def text(self, tool: str, **arguments: object) -> str:
        """Call a tool that must succeed; return its text."""
        result = await self.gate.call(tool, arguments)  # type: ignore[arg-type]
        assert not result.code, (result.code, result.text)
        return result.text

    async def result(self, tool: str, **arguments: object) -> ToolResult:
        """Call a tool."""
        return await self.gate.call(tool, arguments)  # type: ignore[arg-type]


@asynccontextmanager
async def shell_bench(
    level: str,
    *,
    env: Mapping[str, str] | None = None,
    rules: Sequence[ToolRule] = (ToolRule("execute", "allow"),),
    ask: AskPerson | None = None,
    max_command_ms: int = 600_000,
) -> AsyncIterator[ShellBench]:
    """Open the tools for commands at a level; they may run anything unless `rules` are given."""
    with place() as top:
        work, outside = new_directory(top / "work"), new_directory(top / "outside")
        audit = AuditList()
        async with sandbox_at(level, top) as sandbox:
            commands = Commands(sandbox, str(work), env or ENV, max_command_ms)
            async with gate_for(ShellTools(commands), rules=rules, ask=ask, record=audit) as gate:
                yield ShellBench(gate, work, outside, audit)
