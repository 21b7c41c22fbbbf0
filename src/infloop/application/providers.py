"""Providers: which there are, which can be used, and which agents and models they offer.

Secrets are never shown.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from infloop.application.agent_choice import known_providers, suggestion
from infloop.application.models import Model
from infloop.application.provider_logins import LoginStatus
from infloop.catalog.agents import agents, has_agent_files
from infloop.errors import NotFound, UsageError
from infloop.model.connection import ConnectedProvider
from infloop.model.isolation import UNCONFINED
from infloop.model.provider import (
    AcpProvider,
    BuiltinProvider,
    CliProvider,
    HttpProvider,
    ProgramProvider,
)

if TYPE_CHECKING:
    from infloop.application.resources import FileResources
    from infloop.catalog.agents import Agent
    from infloop.model.provider import Provider


class ProviderEntry(Model, kw_only=True):
    """A provider in a list."""

    id: str
    label: str
    description: str
    transport: str
    glyph: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    connection_id: str | UnsetType = UNSET
    connection_label: str | UnsetType = UNSET


class ProviderList(Model, kw_only=True):
    """All providers, by label."""

    providers: list[ProviderEntry]


class ProviderStatus(Model, kw_only=True):
    """What a provider is like on this machine.

    `installed` and `program` are left out for what is no program, and `version` if the manifest
    does not say how to ask for it. `may` says what it may do at this isolation level.
    """

    id: str
    label: str
    transport: str
    installed: bool | UnsetType = UNSET
    program: str | UnsetType = UNSET
    install: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    login: LoginStatus
    may: str


class ProviderStatusList(Model, kw_only=True):
    """All providers, by label; `level` is empty where no level holds, and `reason` says why."""

    level: str
    reason: str
    providers: list[ProviderStatus]


class AgentEntry(Model, kw_only=True):
    """An agent that a user or a project has defined for a program."""

    name: str
    model: str | UnsetType = UNSET
    group: Literal["user", "project"]


class AgentList(Model, kw_only=True):
    """The agents that a program offers; `error` says why none are listed."""

    agents: list[AgentEntry]
    cwd: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class ProfileEntry(Model, kw_only=True):
    """A model."""

    id: str
    label: str | UnsetType = UNSET


class ProfileList(Model, kw_only=True):
    """Models: as the provider reports now (`live`), or as its manifest lists them (`static`)."""

    profiles: list[ProfileEntry]
    source: Literal["live", "static"]


class Providers:
    """The providers that agent nodes can name."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources
        self._folders = resources.folders.providers

    async def all(self) -> ProviderList:
        found = await asyncio.to_thread(known_providers, self._resources)
        entries = sorted(map(_entry, found.values()), key=lambda one: (one.label.lower(), one.id))
        return ProviderList(providers=entries)

    async def statuses(self, provider_id: str = "") -> ProviderStatusList:
        """Return which providers are installed and logged in, and what they may do here.

        Programs are asked for their version; no model is called. Raises NotFound for an unknown id.
        """
        found = await asyncio.to_thread(known_providers, self._resources)
        if provider_id and provider_id not in found:
            raise NotFound(
                f"there is no provider {provider_id[:80]!r}{suggestion(provider_id, found)}"
            )
        here = await self._resources.confinement()
        chosen = [found[provider_id]] if provider_id else [*found.values()]
        statuses = await asyncio.gather(*(self._status(one, here.level) for one in chosen))
        ordered = sorted(statuses, key=lambda one: (one.label.lower(), one.id))
        return ProviderStatusList(level=here.level, reason=here.reason, providers=ordered)

    async def programs(self) -> list[ProviderStatus]:
        """Return the providers that are programs, installed or not; no level is tried."""
        found = await asyncio.to_thread(known_providers, self._resources)
        programs = [one for one in found.values() if isinstance(one, ProgramProvider)]
        return list(await asyncio.gather(*(self._status(one, UNCONFINED) for one in programs)))

    async def _status(self, provider: Provider, level: str) -> ProviderStatus:
        status = ProviderStatus(
            id=provider.id,
            label=provider.label,
            transport=provider.transport,
            login=self._resources.login_of(provider),
            may=_may(provider, level),
        )
        if not isinstance(provider, ProgramProvider):
            return status
        program, setup = self._resources.program_of(provider), provider.setup
        status.installed = bool(program)
        status.install = setup.install or UNSET
        if program:
            status.program = program
        if program and setup.version_args:
            status.version = await self._resources.version_of(program, setup.version_args) or UNSET
        return status

    async def agents(self, provider_id: str, cwd: str = "") -> AgentList:
        """List the agents that the user, or the project in `cwd`, has defined for a program."""
        provider = await self._find(provider_id)
        if not isinstance(provider, CliProvider):
            raise UsageError(f"provider {provider_id!r} is no program", "not-a-program")
        project = Path(cwd) if cwd.startswith("/") else None
        home = self._resources.folders.home
        found = await asyncio.to_thread(_agents, home, provider, project)
        return AgentList(
            agents=[
                AgentEntry(name=one.name, model=one.model or UNSET, group=one.group)
                for one in found or ()
            ],
            cwd=cwd if project else UNSET,
            error="agent listing unavailable" if found is None else UNSET,
        )

    async def profiles(self, provider_id: str) -> ProfileList:
        """List the models of an HTTP provider, asking it where that is possible."""
        provider = await self._find(provider_id)
        if not isinstance(provider, HttpProvider):
            raise UsageError(f"provider {provider_id!r} is not behind an HTTP API", "not-http")
        offer = await self._resources.models_of(provider)
        return ProfileList(
            profiles=[
                ProfileEntry(id=one.id, label=UNSET if one.label is None else one.label)
                for one in offer.profiles
            ],
            source=offer.source,
        )

    async def _find(self, provider_id: str) -> Provider:
        for folder in self._folders:
            found = await asyncio.to_thread(folder.find, provider_id)
            if found is not None:
                return found
        raise NotFound(f"there is no provider {provider_id[:80]!r}")


def _agents(home: Path, provider: Provider, project: Path | None) -> list[Agent] | None:
    """Return a program's agents; None when their files are unknown or cannot be read."""
    if not has_agent_files(provider):
        return None
    try:
        return agents(home, project)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def _entry(provider: Provider) -> ProviderEntry:
    connected = provider if isinstance(provider, ConnectedProvider) else None
    return ProviderEntry(
        id=provider.id,
        label=provider.label,
        description=provider.description,
        transport=provider.transport,
        glyph=provider.glyph if provider.glyph is not None else UNSET,
        kind=connected.kind if connected else UNSET,
        connection_id=connected.connection_id if connected else UNSET,
        connection_label=connected.connection_label if connected else UNSET,
    )


def _may(provider: Provider, level: str) -> str:
    """Say what a provider may do at an isolation level, as its manifest has it."""
    if isinstance(provider, CliProvider):
        arguments = provider.host_args if level == UNCONFINED else provider.confined_args
        allowed = f"what {' '.join(arguments)} allows" if arguments else "what its settings allow"
        return allowed if level == UNCONFINED else f"{allowed}, within infloop's sandbox"
    if isinstance(provider, AcpProvider):
        answers = provider.permissions.to_json()
        default = answers.pop("default", "deny")
        named = [f"{kind}: {answer}" for kind, answer in answers.items()]
        return ", ".join([*named, f"everything else: {default}"])
    if isinstance(provider, HttpProvider):
        return "answer; it has no tools"
    if isinstance(provider, BuiltinProvider):
        return "what [[security.approvals.rules]] allow; every call passes one gate"
    return "play its script"
