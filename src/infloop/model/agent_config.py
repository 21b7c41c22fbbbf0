"""The tables of `infloop.toml` that configure the built-in agent and its tools.

    [providers.NAME]              a model API: its kind, address, and the variable with its key
    [router.planning]             which model plans, codes or summarises
    [agent]                       what the agent has and how long it works
    [security.secrets]            how a key is found
    [security.leaks]              what happens when a tool prints a secret
    [[security.egress.rules]]     what the tools may reach
    [[security.approvals.rules]]  what a person is asked for
    [mcp.servers.NAME]            servers whose tools the agent has

An unknown key is an error: a misspelt rule must not leave a guard off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from infloop.errors import EgressError
from infloop.model.capabilities import ToolRule
from infloop.model.hosts import canonical_host, parse_url, quoted
from infloop.model.url_paths import decoded_segments

# Our own fixed patterns: no nested repeats over the same characters.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # noqa: TID251
_SERVER = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)  # noqa: TID251

TaskKind: TypeAlias = Literal["planning", "coding", "summary"]
ModelApi: TypeAlias = Literal["openai-compatible", "openai", "anthropic", "gemini"]
LeakMode: TypeAlias = Literal["off", "warn", "redact", "enforce"]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table without unknown keys."""


class ModelProvider(Table, frozen=True, kw_only=True):
    """A model API; `api_key_env` is the name of a variable, never a key."""

    kind: ModelApi
    base_url: str = ""
    api_key_env: str = ""
    default_model: str = ""


class Route(Table, frozen=True, kw_only=True):
    """The model for one kind of task; without `model` it is the provider's default."""

    provider: str
    model: str = ""


class Router(Table, frozen=True, kw_only=True):
    """The models by kind of task; a kind without a route uses that of `coding`."""

    planning: Route | None = None
    coding: Route | None = None
    summary: Route | None = None


class Agent(Table, frozen=True, kw_only=True):
    """What the agent has and how long it works.

    tools              the only tools that it has; all of them if missing
    max_turns          how often the model is asked for one prompt
    allow_private      whether tools may reach private addresses that an egress rule names
    search_url         a search engine that answers JSON, with `{query}` and perhaps `{count}`
    search_key_env     the variable with its key
    search_key_header  the header for the key; `Authorization: Bearer` if empty
    """

    tools: tuple[str, ...] | None = None
    max_turns: int = 50
    max_output_tokens: int = 8192
    allow_private: bool = False
    search_url: str = ""
    search_key_env: str = ""
    search_key_header: str = ""
    browser_cdp_url: str = ""

    def __post_init__(self) -> None:
        if not self.search_url:
            return
        if "{query}" not in self.search_url:
            raise ValueError("`search_url` has no {query}")
        fixed = self.search_url.partition("{")[0]
        try:
            parse_url(fixed)
        except EgressError:
            fixed = ""
        if fixed.count("/") < 3:  # otherwise a query could name another host
            raise ValueError("`search_url` does not begin with http(s)://host/")


class Secrets(Table, frozen=True, kw_only=True):
    mode: Literal["env_first"] = "env_first"


class Leaks(Table, frozen=True, kw_only=True):
    """The mode of the leak guard; that of `INFLOOP_LEAKS_MODE` if missing."""

    mode: LeakMode | None = None


class EgressRule(Table, frozen=True, kw_only=True):
    """What one tool may reach.

    tool         the tool, or `*` for every one
    host         exactly this host
    path_prefix  the path, compared by whole decoded segments: `/serde` is not `/serde-evil`
    methods      the HTTP methods; all if empty
    ports        the ports; those of the schemes if empty
    schemes      http, https, ws, wss; https and wss if empty
    """

    host: str
    tool: str = "*"
    path_prefix: str = ""
    methods: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    schemes: tuple[Literal["http", "https", "ws", "wss"], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could never match, because a wrong rule must not go unnoticed."""
        try:
            canonical_host(self.host)
            if self.path_prefix:
                decoded_segments(self.path_prefix)
        except EgressError as error:
            raise ValueError(str(error)) from None
        if not self.tool:
            raise ValueError("`tool` is empty: write a tool, or '*' for every one")
        if not all(method.isascii() and method.isalpha() for method in self.methods):
            raise ValueError(f"{list(self.methods)} are not HTTP methods")
        if not all(0 < port < 1 << 16 for port in self.ports):
            raise ValueError(f"{list(self.ports)} are not ports")


class Egress(Table, frozen=True, kw_only=True):
    rules: tuple[EgressRule, ...] = ()


class Approvals(Table, frozen=True, kw_only=True):
    """Rules that come before the default ones."""

    rules: tuple[ToolRule, ...] = ()


class Security(Table, frozen=True, kw_only=True):
    secrets: Secrets = Secrets()
    leaks: Leaks = Leaks()
    egress: Egress = Egress()
    approvals: Approvals = Approvals()


class McpServer(Table, frozen=True, kw_only=True):
    """An MCP server: a program that starts in the sandbox, or an address.

    env        names of variables that the program gets
    token_env  the variable with the token for the address
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""
    token_env: str = ""

    def __post_init__(self) -> None:
        if bool(self.command) is bool(self.url):
            raise ValueError("write either `command` or `url`")
        if self.url and (self.args or self.env):
            raise ValueError("`args` and `env` belong to a `command`")
        if self.token_env and not self.url:
            raise ValueError("`token_env` belongs to a `url`")
        names = (*self.env, self.token_env) if self.token_env else self.env
        if not all(_VARIABLE.fullmatch(name) for name in names):
            # It may be a secret, so it is not repeated.
            raise ValueError("`env` or `token_env` has something else than names of variables")
        if self.url:
            try:
                parse_url(self.url)
            except EgressError:
                # It may contain a password, so it is not repeated.
                raise ValueError("`url` is not a plain http(s) URL without user") from None


class Mcp(Table, frozen=True, kw_only=True):
    """The servers by name; their names are parts of the names of their tools."""

    servers: Mapping[str, McpServer] = {}

    def __post_init__(self) -> None:
        for name in self.servers:
            if not _SERVER.fullmatch(name) or "__" in name or name.endswith("_"):
                raise ValueError(
                    f"{quoted(name)} cannot be the name of a server: write at most 32 lower-case "
                    "letters, digits, '-' and single '_', beginning with a letter"
                )


class AgentConfig(Table, frozen=True, kw_only=True):
    """All tables; empty ones have the defaults."""

    providers: Mapping[str, ModelProvider] = {}
    router: Router = Router()
    agent: Agent = Agent()
    security: Security = Security()
    mcp: Mcp = Mcp()
