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

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from infloop.model.capabilities import ToolRule

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

    tools          the only tools that it has; all of them if missing
    max_turns      how often the model is asked for one prompt
    allow_private  whether tools may reach private addresses that a rule allows
    """

    tools: tuple[str, ...] | None = None
    max_turns: int = 50
    max_output_tokens: int = 8192
    allow_private: bool = False
    search_url: str = ""
    search_key_env: str = ""
    browser_cdp_url: str = ""


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

    env  names of variables that the program gets
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""


class Mcp(Table, frozen=True, kw_only=True):
    servers: Mapping[str, McpServer] = {}


class AgentConfig(Table, frozen=True, kw_only=True):
    """All tables; empty ones have the defaults."""

    providers: Mapping[str, ModelProvider] = {}
    router: Router = Router()
    agent: Agent = Agent()
    security: Security = Security()
    mcp: Mcp = Mcp()
