"""Decides whether a text can be the name of a variable that holds a key, or is a key itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infloop.policy.leaks.guard import LeakGuard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.model.agent_config import AgentConfig
    from infloop.policy.leaks.rules import LeakRule

# Our own fixed pattern: linear, no nested repeats.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # noqa: TID251
_LONG_PART = 10
_SOME = 3


def key_variables(config: AgentConfig) -> Iterator[tuple[str, str]]:
    """Yield each place of the configuration that names a variable with a key, and the name."""
    for name, provider in config.providers.items():
        if provider.api_key_env:
            yield f"[providers.{name}] api_key_env", provider.api_key_env
    if config.agent.search_key_env:
        yield "[agent] search_key_env", config.agent.search_key_env
    for name, server in config.mcp.servers.items():
        if server.token_env:
            yield f"[mcp.servers.{name}] token_env", server.token_env


def _named_variables(config: AgentConfig) -> Iterator[tuple[str, str]]:
    """Yield also the variables that programs get, which may hold anything."""
    yield from key_variables(config)
    for name, server in config.mcp.servers.items():
        for variable in server.env:
            yield f"[mcp.servers.{name}] env", variable


def name_problems(config: AgentConfig, rules: Sequence[LeakRule]) -> Iterator[str]:
    """Yield what is wrong with the names of variables. No problem shows the text."""
    guard = LeakGuard((), lambda: rules)
    for place, name in _named_variables(config):
        if looks_like_key(name, guard):
            yield (
                f"{place}: this looks like a key. Put the key into an environment variable and the "
                "variable's name here; if the file was shared, replace the key"
            )
        elif not _NAME.fullmatch(name):
            yield f"{place}: must be the name of an environment variable, such as OPENAI_API_KEY"


def looks_like_key(text: str, guard: LeakGuard) -> bool:
    """Tell whether a text is a key rather than a name."""
    if guard.redact(text) != text:
        return True
    return any(_is_random(part) for part in text.replace("-", "_").split("_"))


def _is_random(part: str) -> bool:
    """Tell whether a part of a name mixes letters and digits, or cases, as no word does."""
    digits = sum(map(str.isdigit, part))
    letters = sum(map(str.isalpha, part))
    mixes_cases = any(map(str.islower, part)) and sum(map(str.isupper, part)) >= _SOME
    return len(part) >= _LONG_PART and (
        (digits >= _SOME and letters >= _SOME) or (mixes_cases and digits > 0)
    )
