"""A gate for tests: tools, a policy, an audit log in memory, a person who answers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from infloop.policy.leaks.guard import LeakGuard
from infloop.policy.permissions import PermissionDecision
from infloop.policy.tool_policy import DEFAULT_RULES, ToolPolicy
from infloop.tools.gate import MAX_TEXT_CHARS, Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from infloop.model.approval import Question
    from infloop.model.capabilities import ToolRule
    from infloop.model.values import JsonObject
    from infloop.policy.permissions import AskPerson
    from infloop.tools.base import ToolFamily
    from infloop.tools.gate import ToolEvent


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
