"""What a transport may use to make a provider of a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from infloop.providers.programs import program_variable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from infloop.model.agent_config import AgentConfig
    from infloop.model.provider import ProgramProvider
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.policy.permissions import AskPerson
    from infloop.providers.base import Usage
    from infloop.providers.prices import PriceList
    from infloop.providers.request_bound import RequestBound
    from infloop.sandbox.base import Sandbox
    from infloop.tools.base import ToolFamily
    from infloop.tools.toolset import Toolset


class ProviderEnvironment(Protocol):
    """Makes the environment of an agent."""

    def __call__(self, passthrough: Sequence[str]) -> dict[str, str]:
        """Return the base variables and those that a manifest names."""


class OpenAnswer(Protocol):
    """A request to a model that was reserved in the ledger."""

    def settle(self, usage: Usage, *, complete: bool) -> None:
        """Set what it used; without `complete` the most that it can cost is charged."""


class ReserveRequest(Protocol):
    """Reserves the requests to models of one step."""

    def __call__(self, bound: RequestBound, prices: PriceList) -> Awaitable[OpenAnswer]:
        """Hold what a request can cost, as soon as there is room. Raises BudgetError."""


class OpenTools(Protocol):
    """Opens the tools of an agent."""

    def __call__(
        self, directory: str, tools: frozenset[str] | None, own: Sequence[ToolFamily]
    ) -> Awaitable[Toolset]:
        """Open the tools for a directory: only those named, or all; `own` are the caller's."""


class AgentServices(msgspec.Struct, frozen=True):
    """What the built-in agent is given.

    config     the tables of the settings
    sessions   the folder of its sessions
    leaks      removes secrets from what is stored
    open_tools opens its tools
    reserve    reserves its requests in the ledger
    """

    config: AgentConfig
    sessions: Path
    leaks: LeakGuard
    open_tools: OpenTools
    reserve: ReserveRequest


class ProviderContext(msgspec.Struct, frozen=True):
    """Everything that a transport is given.

    environment      makes the environment of a child
    variables        the operator's own variables: tokens of HTTP providers, programs of agents
    folder           the operator's folder of manifests
    max_command_ms   the longest time that the operator gives a command
    sandbox          makes the sandbox of a child; with a manifest, one that gives the child the
                     hosts, home files and credential that the manifest lists
    ask_person       requests a person's approval; None if nobody can be asked
    max_api_call_ms  the longest time that the operator gives a call of an HTTP provider
    agent            what the built-in agent is given; None if there is none here
    """

    environment: ProviderEnvironment
    variables: Mapping[str, str]
    folder: Path
    max_command_ms: int
    sandbox: Callable[[ProgramProvider | None], Sandbox]
    ask_person: AskPerson | None = None
    max_api_call_ms: int = 3_600_000
    agent: AgentServices | None = None

    def program(self, provider_id: str) -> str:
        """Return the program that the operator named for a provider; empty for the manifest's."""
        return self.variables.get(program_variable(provider_id), "")
