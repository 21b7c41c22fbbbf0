"""Decides whether a tool may be called: allow, ask a person, or deny.

Rules
  * A call is decided by what it needs, not by the tool's name. Every need is decided; the strictest
    answer counts.
  * For one need the first rule that matches decides. The operator's rules come before the defaults.
    A need that no rule matches is denied.
  * A sub-agent has its own policy and those of everybody above it; the strictest answer counts, so
    it can never do more than they.
  * Without any policy everything is denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.model.capabilities import ToolAnswer, ToolRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from infloop.model.capabilities import Need

_STRICTNESS: Mapping[ToolAnswer, int] = {"allow": 0, "ask": 1, "deny": 2}


DEFAULT_RULES: tuple[ToolRule, ...] = (
    ToolRule("write", "ask", trait="protected"),
    ToolRule("execute", "ask", trait="destructive"),
    ToolRule("execute", "ask", trait="background"),
    ToolRule("execute", "ask", trait="unconfined"),
    ToolRule("execute", "ask", trait="new-tool"),
    ToolRule("network-write", "ask"),
    ToolRule("private-network", "ask"),
    ToolRule("read", "allow"),
    ToolRule("write", "allow"),
    ToolRule("execute", "allow"),
    ToolRule("network-read", "allow"),
)
"""What holds without any configuration."""


class ToolPolicy(msgspec.Struct, frozen=True):
    """The rules of one agent; `tools` are the only tools that it has, or None for all."""

    rules: tuple[ToolRule, ...] = DEFAULT_RULES
    tools: frozenset[str] | None = None

    def lists(self, tool: str) -> bool:
        """Tell whether the agent has a tool at all."""
        return self.tools is None or tool in self.tools


class ToolDecision(NamedTuple):
    """A decision, and its reason for a person."""

    answer: ToolAnswer
    reason: str


def is_listed(policies: Iterable[ToolPolicy], tool: str) -> bool:
    """Tell whether all policies list a tool; without a policy, none is listed."""
    answers = [policy.lists(tool) for policy in policies]
    return bool(answers) and all(answers)


def decide_call(policies: Iterable[ToolPolicy], needs: Iterable[Need]) -> ToolDecision:
    """Decide about a call with these needs."""
    chain, wanted = tuple(policies), tuple(needs)
    if not chain:
        return ToolDecision("deny", "there is no policy for tools")
    if not wanted:
        return ToolDecision("deny", "the tool does not say what it needs")
    decisions = [_decide_need(policy, need) for policy in chain for need in wanted]
    return max(decisions, key=lambda decision: _STRICTNESS[decision.answer])


def _decide_need(policy: ToolPolicy, need: Need) -> ToolDecision:
    for rule in policy.rules:
        if rule.matches(need):
            return ToolDecision(rule.answer, f"rule: {rule}")
    return ToolDecision("deny", f"no rule for {need.capability}")
