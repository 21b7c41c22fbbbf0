"""The rules that describe tokens, read from `rules.toml`."""

from __future__ import annotations

import tomllib
from functools import cache, cached_property
from pkgutil import get_data
from typing import NamedTuple

import msgspec
import re2

from infloop.policy.leaks.entropy import entropy

SPAN = 1024
"""A match on one line is at most this long, in bytes."""
BLOCK_SPAN = 16 * 1024
"""A match of several lines is at most this long, in bytes."""

# An alphanumeric character before a token is no boundary, unless an escape or a colour ends there.
_ESCAPE = re2.compile(
    rb"(?:\\[nrtbf0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]*m)$"
)
LONGEST_ESCAPE = 12
_BLOCK_END = b"-----END"


class Span(NamedTuple):
    """A part of a text, in bytes."""

    start: int
    end: int


class Allowlist(msgspec.Struct, frozen=True):
    regexes: tuple[str, ...] = ()


class LeakRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", dict=True):
    """What the tokens of one kind look like."""

    id: str
    description: str
    regex: str
    keywords: tuple[str, ...]
    secret_group: int = 0
    entropy: float = 0.0
    allowlist: Allowlist = Allowlist()
    lines: bool = False

    @property
    def ignores_case(self) -> bool:
        return self.regex.startswith("(?i)")

    @cached_property
    def _pattern(self) -> re2._Regexp[bytes]:
        return re2.compile(self.regex.removeprefix(r"\b").encode())

    @cached_property
    def _allowed(self) -> list[re2._Regexp[bytes]]:
        return [re2.compile(each.encode()) for each in self.allowlist.regexes]

    def may_start(self, data: bytes, at: int) -> bool:
        """Tell whether there is a left boundary, if the rule requires one."""
        return not self.regex.startswith(r"\b") or is_boundary(data, at)

    def window_end(self, data: bytes, at: int) -> tuple[int, bool]:
        """Return where a match from `at` on must end, and whether more text could move that."""
        limit = at + (BLOCK_SPAN if self.lines else SPAN)
        last_line = data.find(_BLOCK_END, at, limit) if self.lines else at
        end = data.find(b"\n", last_line, limit) if last_line >= 0 else -1
        if end < 0:
            return min(len(data), limit), len(data) < limit
        return end, False

    def value_at(self, data: bytes, at: int, end: int) -> Span | None:
        """Return what may be a secret in the match from a keyword on, if there is a match."""
        found = self._pattern.match(data, at, end)
        return Span(*found.span(self.secret_group)) if found else None

    def is_secret(self, value: bytes) -> bool:
        """Tell whether a value is neither too simple nor allowed."""
        if self.entropy and entropy(value) < self.entropy:
            return False
        return not any(each.search(value) for each in self._allowed)


def is_boundary(data: bytes, at: int) -> bool:
    if at == 0 or not data[at - 1 : at].isalnum():
        return True
    return _ESCAPE.search(data[max(0, at - LONGEST_ESCAPE) : at]) is not None


class _RuleFile(msgspec.Struct, forbid_unknown_fields=True):
    rules: tuple[LeakRule, ...]


@cache
def shipped_rules() -> tuple[LeakRule, ...]:
    """Return the rules of `rules.toml`."""
    data = get_data("infloop.policy.leaks", "rules.toml")
    assert data is not None
    text = data.decode()
    return msgspec.convert(tomllib.loads(text), _RuleFile).rules
