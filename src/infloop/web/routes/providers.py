"""Who answers a prompt, and which models there are. Secrets are never shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from fastapi import Path as InPath
from fastapi import Query
from pydantic import Field

from infloop.catalog.agents import Agent, agents, has_agent_files
from infloop.errors import NotFound
from infloop.model.connection import ConnectedProvider
from infloop.model.provider import CliProvider, HttpProvider, Provider
from infloop.web.dependencies import WebParts
from infloop.web.errors import Refused, documented
from infloop.web.routing import Parts, Shape, router

ROUTER = router("providers")

ProviderId = Annotated[str, InPath(max_length=200)]


class ProviderEntry(Shape):
    """A provider in a list."""

    id: str
    label: str
    description: str
    transport: str
    glyph: str | None = None
    kind: str | None = None
    connection_id: str | None = None
    connection_label: str | None = None


class ProviderList(Shape):
    """All providers, by label."""

    providers: list[ProviderEntry]


class AgentEntry(Shape):
    """An agent of a program; `group` says whose it is."""

    name: str
    model: str | None = None
    group: Literal["user", "project"]


class AgentList(Shape):
    """The agents that a program offers; `error` says why none are listed."""

    agents: list[AgentEntry]
    cwd: str | None = None
    error: str | None = None


class ProfileEntry(Shape):
    """A model."""

    id: str
    label: str | None = None


class ProfileList(Shape):
    """Models: as the provider tells now, or as its manifest lists them."""

    profiles: list[ProfileEntry]
    source: str = Field(description="live or static")


@ROUTER.get("/api/providers", response_model_exclude_none=True)
async def list_providers(parts: Parts) -> ProviderList:
    """List the providers that agent nodes can name."""
    found = await asyncio.to_thread(_providers, parts)
    entries = sorted((_entry(one) for one in found), key=lambda one: (one.label.lower(), one.id))
    return ProviderList(providers=entries)


@ROUTER.get(
    "/api/providers/{provider_id}/agents",
    response_model_exclude_none=True,
    responses=documented(404),
)
async def list_agents(
    provider_id: ProviderId, parts: Parts, cwd: Annotated[str, Query(max_length=4_096)] = ""
) -> AgentList:
    """List the agents that you, or the project in `cwd`, have defined for a program."""
    provider = await _provider(parts, provider_id)
    if not isinstance(provider, CliProvider):
        raise Refused(400, "not-a-program", f"provider {provider_id!r} is no program")
    project = Path(cwd) if cwd.startswith("/") else None
    found = await asyncio.to_thread(_agents, parts.places.home, provider, project)
    return AgentList(
        agents=[AgentEntry(name=one.name, model=one.model, group=one.group) for one in found or ()],
        cwd=cwd if project else None,
        error="agent listing unavailable" if found is None else None,
    )


@ROUTER.get(
    "/api/providers/{provider_id}/profiles",
    response_model_exclude_none=True,
    responses=documented(404, 502),
)
async def list_profiles(provider_id: ProviderId, parts: Parts) -> ProfileList:
    """List the models of an HTTP provider, asking it where that is possible."""
    provider = await _provider(parts, provider_id)
    if not isinstance(provider, HttpProvider):
        raise Refused(400, "not-http", f"provider {provider_id!r} is not behind an HTTP API")
    offer = await parts.profiles(provider)
    entries = [ProfileEntry(id=one.id, label=one.label) for one in offer.profiles]
    return ProfileList(profiles=entries, source=offer.source)


def _agents(home: Path, provider: Provider, project: Path | None) -> list[Agent] | None:
    """Return a program's agents; None when nobody knows where they are, or they cannot be read."""
    if not has_agent_files(provider):
        return None
    try:
        return agents(home, project)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def _providers(parts: WebParts) -> list[Provider]:
    found: dict[str, Provider] = {}
    for folder in parts.places.providers:
        for provider in folder.load()[0]:
            found.setdefault(provider.id, provider)
    return list(found.values())


async def _provider(parts: WebParts, provider_id: str) -> Provider:
    for folder in parts.places.providers:
        found = await asyncio.to_thread(folder.find, provider_id)
        if found is not None:
            return found
    raise NotFound(f"there is no provider {provider_id[:80]!r}")


def _entry(provider: Provider) -> ProviderEntry:
    entry = ProviderEntry(
        id=provider.id,
        label=provider.label,
        description=provider.description,
        transport=provider.transport,
        glyph=provider.glyph,
    )
    if isinstance(provider, ConnectedProvider):
        entry.kind = provider.kind
        entry.connection_id = provider.connection_id
        entry.connection_label = provider.connection_label
    return entry
