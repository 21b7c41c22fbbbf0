"""Whether an agent that asks may use a tool."""

from __future__ import annotations

from typing import NamedTuple

from infloop.model.provider import Decision, Permissions

KINDS = frozenset(Permissions.model_fields) - {"default"}


class Ruling(NamedTuple):
    """Whether it may, and by what."""

    allowed: bool
    why: str


def rule_on(permissions: Permissions, kind: str, *, skips_prompts: bool = False) -> Ruling:
    """Decide on the use of a tool of this kind; a kind that nobody knows is `default`.

    Nobody is there to be asked while a run goes on, and silence denies.
    """
    if skips_prompts:
        return Ruling(allowed=True, why="this node skips permission prompts")
    named: Decision | None = getattr(permissions, kind) if kind in KINDS else None
    decision = named or permissions.default
    rule = f"permissions.{kind if named else 'default'} is {decision!r}"
    if decision == "ask":
        return Ruling(allowed=False, why=f"{rule}, and nobody answered")
    return Ruling(decision == "allow", rule)
