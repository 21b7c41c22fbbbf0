"""Whether an agent that asks may use a tool."""

from __future__ import annotations

from typing import NamedTuple

from infloop.model.provider import PermissionAnswer, Permissions

KINDS = frozenset(Permissions.model_fields) - {"default"}


class Ruling(NamedTuple):
    """Whether it may, and by what; with `asks`, a person may say otherwise."""

    allowed: bool
    why: str
    asks: bool = False


def rule_on(permissions: Permissions, kind: str, *, skips_prompts: bool = False) -> Ruling:
    """Decide on the use of a tool of this kind; a kind that nobody knows is `default`.

    What is to be asked for is denied until somebody has answered: silence denies.
    """
    if skips_prompts:
        return Ruling(allowed=True, why="this node skips permission prompts")
    named: PermissionAnswer | None = getattr(permissions, kind) if kind in KINDS else None
    decision = named or permissions.default
    rule = f"permissions.{kind if named else 'default'} is {decision!r}"
    if decision == "ask":
        return Ruling(allowed=False, why=f"{rule}, and nobody answered", asks=True)
    return Ruling(decision == "allow", rule)
