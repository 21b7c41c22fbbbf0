"""Where workflow, provider and trigger files are found."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.catalog import ProviderFiles, WorkflowCatalog
    from infloop.catalog.lookup import CatalogLookup
    from infloop.engine.graph import Definition


def workflow_catalog(chosen: Settings) -> WorkflowCatalog:
    """Return the folders in which workflows are found."""
    from infloop.catalog import LIBRARY_DIR, WorkflowCatalog

    return WorkflowCatalog(chosen.workflows, chosen.library_dir or LIBRARY_DIR)


def trigger_lookup(chosen: Settings) -> CatalogLookup:
    """Return where triggers, webhook plugins and workflows are looked up."""
    from infloop.catalog.lookup import CatalogLookup
    from infloop.catalog.plugins import PluginFiles
    from infloop.catalog.triggers import TriggerFiles

    return CatalogLookup(
        TriggerFiles(chosen.triggers),
        PluginFiles(chosen.webhook_plugins),
        workflow_catalog(chosen),
    )


def provider_folders(chosen: Settings) -> tuple[ProviderFiles, ...]:
    """Return where providers are found, first the operator's own: the first with an id counts."""
    from infloop.catalog import ProviderFiles
    from infloop.catalog.connections import connected_providers
    from infloop.providers import SHIPPED_DIR

    return (
        ProviderFiles(chosen.providers),
        ProviderFiles(chosen.connections, connected_providers),
        ProviderFiles(SHIPPED_DIR),
    )


def known_providers(chosen: Settings) -> list[str]:
    """Return the ids that an agent node can name."""
    return list(dict.fromkeys(name for folder in provider_folders(chosen) for name in folder.ids()))


def definition_loader(chosen: Settings) -> Callable[[str], Awaitable[Definition]]:
    """Return the way from a workflow's id to what a run of it executes, read as it is now."""
    from infloop.catalog.files import folder_state
    from infloop.engine.graph import Definition

    catalog, folders = workflow_catalog(chosen), provider_folders(chosen)
    read_before: dict[str, tuple[object, Definition]] = {}

    def read(workflow_id: str, known: frozenset[str]) -> Definition:
        bundle = catalog.load_bundle(workflow_id, known_providers=known)
        return Definition(bundle.root.id, bundle.plain())

    async def load(workflow_id: str) -> Definition:
        # Looking whether anything has changed takes less than going to another thread.
        known = frozenset(name for folder in folders for name in folder.ids())
        looks = folder_state(catalog.user_dir), folder_state(catalog.library_dir), known
        before = read_before.get(workflow_id)
        if before is None or before[0] != looks or None in looks:
            before = looks, await asyncio.to_thread(read, workflow_id, known)
            read_before[workflow_id] = before
        return before[1]

    return load
