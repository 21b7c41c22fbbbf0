"""Providers: which there are, and which agents and models they offer. Secrets are never shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from infloop.application.models import Model
from infloop.catalog.agents import agents, has_agent_files
from infloop.errors import NotFound, UsageError
from infloop.model.connection import ConnectedProvider
from infloop.model.provider import CliProvider, HttpProvider

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
        found = await asyncio.to_thread(self._all)
        entries = sorted(map(_entry, found), key=lambda one: (one.label.lower(), one.id))
        return ProviderList(providers=entries)

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

    def _all(self) -> list[Provider]:
        found: dict[str, Provider] = {}
        for folder in self._folders:
            for provider in folder.load()[0]:
                found.setdefault(provider.id, provider)
        return [*found.values()]

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
