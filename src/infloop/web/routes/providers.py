"""Providers, and which agents and models they offer. Secrets are never shown."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from infloop.application.providers import (
    AgentList,
    ProfileList,
    ProviderList,
    ProviderStatusList,
)
from infloop.web.errors import documented
from infloop.web.routing import App, router

ROUTER = router("providers")

ProviderId = Annotated[str, Path(max_length=200)]


@ROUTER.get("/api/providers")
async def list_providers(app: App) -> ProviderList:
    """List the providers that agent nodes can name."""
    return await app.providers.all()


@ROUTER.get("/api/providers/status")
async def list_provider_statuses(app: App) -> ProviderStatusList:
    """Say which providers are installed and logged in, and what they may do here."""
    return await app.providers.statuses()


@ROUTER.get("/api/providers/{provider_id}/agents", responses=documented(404))
async def list_agents(
    provider_id: ProviderId, app: App, cwd: Annotated[str, Query(max_length=4_096)] = ""
) -> AgentList:
    """List the agents that you, or the project in `cwd`, have defined for a program."""
    return await app.providers.agents(provider_id, cwd)


@ROUTER.get("/api/providers/{provider_id}/profiles", responses=documented(404, 502))
async def list_profiles(provider_id: ProviderId, app: App) -> ProfileList:
    """List the models of an HTTP provider, asking it where that is possible."""
    return await app.providers.profiles(provider_id)
