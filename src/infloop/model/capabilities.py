"""What a tool call can do to the machine and to others.

Permission is decided by capability and not by the name of a tool, so a tool with another name for
the same thing is treated the same.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

Capability: TypeAlias = Literal[
    "read", "write", "execute", "network-read", "network-write", "private-network"
]

CAPABILITIES: Mapping[Capability, str] = {
    "read": "Read files of the workspace.",
    "write": "Change files of the workspace.",
    "execute": "Run a program, or code in a page.",
    "network-read": "Fetch something from a public address.",
    "network-write": "Send something to a public address.",
    "private-network": "Connect to this machine or to a private network.",
}

Trait: TypeAlias = Literal["protected", "destructive", "background", "unconfined", "new-tool"]

TRAITS: Mapping[Trait, str] = {
    "protected": "A file on which other programs act: settings, hooks, start-up files.",
    "destructive": "A command that deletes, overwrites or publishes, as far as its words show.",
    "background": "A process that keeps running after the call.",
    "unconfined": "A program at isolation level `host`.",
    "new-tool": "A tool of an MCP server that is new or has changed.",
}


class Need(msgspec.Struct, frozen=True):
    """One capability that a call needs, and on what: a path, a command line, a URL."""

    capability: Capability
    subject: str
    traits: frozenset[Trait] = frozenset()


ToolAnswer: TypeAlias = Literal["allow", "ask", "deny"]


class ToolRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer for needs of one capability.

    pattern  compared with the whole subject; `*` stands for any text
    trait    if given, only needs with this trait match
    """

    capability: Capability
    answer: ToolAnswer
    pattern: str = "*"
    trait: Trait | None = None

    def matches(self, need: Need) -> bool:
        """Tell whether this rule decides about a need."""
        return (
            self.capability == need.capability
            and (self.trait is None or self.trait in need.traits)
            and fnmatchcase(need.subject, _only_stars(self.pattern))
        )

    def __str__(self) -> str:
        trait = f" {self.trait}" if self.trait else ""
        pattern = f" {self.pattern!r}" if self.pattern != "*" else ""
        return f"{self.answer}{trait} {self.capability}{pattern}"


def _only_stars(pattern: str) -> str:
    """Return a pattern for `fnmatch` in which only `*` is special."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
