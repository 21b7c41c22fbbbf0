"""Decides whether an agent may use a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from infloop.model.approval import Question
    from infloop.model.provider import PermissionAnswer, Permissions


class PermissionDecision(NamedTuple):
    """A decision and its reason; with `asks`, a person may decide otherwise."""

    allowed: bool
    why: str
    asks: bool = False


class AskPerson(Protocol):
    """Asks a person for approval."""

    def __call__(self, question: Question) -> Awaitable[PermissionDecision]:
        """Wait for the answer and return it.

        No answer in time is a denial. Cancelling withdraws the question.
        """


def decide_permission(
    permissions: Permissions, kind: str, *, skips_prompts: bool = False
) -> PermissionDecision:
    """Decide about a tool of this kind; an unknown kind is decided by `default`.

    A tool that needs a person's answer is denied until there is one.
    """
    if skips_prompts:
        return PermissionDecision(allowed=True, why="this node skips permission prompts")
    kinds = permissions.model_fields.keys() - {"default"}
    named: PermissionAnswer | None = getattr(permissions, kind) if kind in kinds else None
    decision = named or permissions.default
    rule = f"permissions.{kind if named else 'default'} is {decision!r}"
    if decision == "ask":
        return PermissionDecision(allowed=False, why=f"{rule}, and nobody answered", asks=True)
    return PermissionDecision(decision == "allow", rule)
