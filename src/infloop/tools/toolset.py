"""Which tools the built-in agent gets: families, in the order in which a model sees them.

A family is one function and one line in `FAMILIES`. It is made for each step, with what the step
may use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from infloop.errors import StepError
from infloop.model.capabilities import ToolRule
from infloop.model.hosts import authority
from infloop.policy.tool_policy import DEFAULT_RULES, INHERITED_RULES, ToolPolicy, decide_call
from infloop.tools.base import ToolFamily
from infloop.tools.gate import Gate
from infloop.tools.http_requests import ToolRequests
from infloop.tools.workspace import WorkspaceTools, open_workspace
from infloop.tools.workspace.tool import reading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from infloop.model.agent_config import AgentConfig, EgressRule
    from infloop.policy.hosts import Allowlist
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.policy.permissions import AskPerson
    from infloop.sandbox.base import Sandbox
    from infloop.tools.base import Tool
    from infloop.tools.gate import RecordCall
    from infloop.tools.workspace import Workspace

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_USUAL_SCHEMES = ("https", "wss")


class ToolContext(msgspec.Struct, frozen=True):
    """Everything that the families of one step are given.

    directory       the step's working directory: its worktree, if it has one
    private         folders of which tools see nothing, such as the data directory
    sandbox         makes the step's sandbox
    own_sandbox     the sandbox of a child that brings its own proxy, such as a browser
    environment     makes the environment of a child, with the variables that are named
    variables       the operator's own variables, for the keys that the configuration names
    config          the tables of the settings
    hosts           the hosts that the run may reach; None for all
    known_tools     the file that remembers which tools of MCP servers were used
    max_command_ms  the operator's limit for every command
    scratch         where unconfined children get their directories
    user            the uid and gid of children, if root has named a user
    """

    directory: Path
    private: tuple[Path, ...]
    sandbox: Callable[[], Sandbox]
    own_sandbox: Sandbox
    environment: Callable[[Sequence[str]], Mapping[str, str]]
    variables: Mapping[str, str]
    config: AgentConfig
    hosts: Allowlist | None
    known_tools: Path
    max_command_ms: int
    scratch: str
    user: tuple[int, int] | None = None


class _Parts(msgspec.Struct, frozen=True):
    """What families share: the files, the policies that decide about files nobody named, and what a
    person should know."""

    context: ToolContext
    workspace: Workspace
    policies: tuple[ToolPolicy, ...]
    problems: list[str]

    def may_read(self, path: str) -> bool:
        return decide_call(self.policies, (reading(path),)).answer == "allow"


MakeFamily: TypeAlias = "Callable[[_Parts], Awaitable[ToolFamily]]"


async def files(parts: _Parts) -> ToolFamily:
    """Return the tools for files."""
    return WorkspaceTools(parts.workspace, parts.may_read)


async def shell(parts: _Parts) -> ToolFamily:
    """Return the tools for commands and processes."""
    from infloop.tools.shell import Commands, ShellTools

    context, directory = parts.context, parts.workspace.directory
    environment = context.environment(())
    return ShellTools(Commands(context.sandbox(), directory, environment, context.max_command_ms))


async def web(parts: _Parts) -> ToolFamily:
    """Return the tools for the web and for other agents."""
    from infloop.tools.web.family import WebTools
    from infloop.tools.web.search import SearchEndpoint

    agent = parts.context.config.agent
    key = parts.context.variables.get(agent.search_key_env, "") if agent.search_key_env else ""
    search = SearchEndpoint(agent.search_url, key, agent.search_key_header)
    requests = ToolRequests(parts.context.config.security.egress.rules, parts.context.hosts)
    return WebTools(requests, search if agent.search_url else None)


async def browser(parts: _Parts) -> ToolFamily:
    """Return the tools of a browser."""
    from infloop.tools.browser.family import BrowserTools
    from infloop.tools.browser.links import BrowserOptions

    context = parts.context
    options = BrowserOptions(
        rules=context.config.security.egress.rules,
        hosts=context.hosts,
        cdp_url=context.config.agent.browser_cdp_url,
        path=context.environment(()).get("PATH", ""),
        scratch=context.scratch,
        user=context.user,
    )
    return BrowserTools(context.own_sandbox, options, parts.workspace)


async def mcp(parts: _Parts) -> ToolFamily:
    """Return the tools of MCP servers, which start now."""
    from infloop.tools.mcp.family import McpHost, open_mcp_tools
    from infloop.tools.mcp.known_tools import KnownTools

    context, config = parts.context, parts.context.config
    host = McpHost(
        sandbox=context.sandbox(),
        cwd=str(context.directory),
        environment=context.environment,
        requests=ToolRequests(config.security.egress.rules, context.hosts),
        known=KnownTools(context.known_tools),
        variables=context.variables,
        allow_private=config.agent.allow_private,
    )
    opened = await open_mcp_tools(config.mcp.servers, host)
    parts.problems.extend(opened.problems)
    return opened


FAMILIES: tuple[MakeFamily, ...] = (files, shell, web, browser, mcp)
"""All families."""


class Toolset(NamedTuple):
    """The gate of one agent, and what a person should know about its tools."""

    gate: Gate
    problems: list[str]


async def open_toolset(
    context: ToolContext,
    own: Sequence[ToolFamily] = (),
    *,
    tools: frozenset[str] | None,
    record: RecordCall,
    leaks: LeakGuard,
    ask: AskPerson | None,
) -> Toolset:
    """Open the tools of one agent: those of all families and `own`. Its owner closes the gate.

    The operator's list and `tools` are the only ones that it has. The operator's rules come before
    the default ones. Raises StepError if the directory cannot be opened.
    """
    policies = _policies(context.config, tools)
    try:
        workspace = open_workspace(context.directory, private=context.private)
    except OSError as error:
        raise StepError(f"{str(context.directory)!r} cannot be opened: {error.strerror}") from None
    parts = _Parts(context, workspace, policies, [])
    families: list[ToolFamily] = [_Closing(workspace)]
    try:
        for make in FAMILIES:
            families.append(await make(parts))  # noqa: PERF401  (those before it are closed)
        gate = Gate([*families, *own], policies, record=record, leaks=leaks, ask=ask)
    except BaseException:
        for family in reversed(families):
            await family.close()
        raise
    return Toolset(gate, parts.problems)


class _Closing(ToolFamily):
    """Closes the files after everything else."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        return ()

    async def close(self) -> None:
        self._workspace.close()


def _policies(config: AgentConfig, tools: frozenset[str] | None) -> tuple[ToolPolicy, ...]:
    private = _private_rules(config.security.egress.rules) if config.agent.allow_private else ()
    rules = (*config.security.approvals.rules, *private, *DEFAULT_RULES)
    listed = config.agent.tools
    operators = ToolPolicy(rules, None if listed is None else frozenset(listed))
    return (operators,) if tools is None else (operators, ToolPolicy(INHERITED_RULES, tools))


def _private_rules(rules: Sequence[EgressRule]) -> Iterator[ToolRule]:
    """Yield rules that allow the private addresses which egress rules name."""
    for rule in rules:
        for scheme in rule.schemes or _USUAL_SCHEMES:
            for port in rule.ports or (_PORTS[scheme],):
                place = authority(rule.host, port, _PORTS[scheme])
                yield ToolRule("private-network", "allow", f"{scheme}://{place}/*")
