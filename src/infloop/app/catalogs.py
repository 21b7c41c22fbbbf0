"""Where workflow, provider and trigger files are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from infloop.catalog import ProviderFiles, WorkflowCatalog
    from infloop.catalog.lookup import CatalogLookup
    from infloop.errors import Problem
    from infloop.model.provider import Provider as Manifest


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
    """Return where providers are found, the operator's first: the first with an id wins."""
    from infloop.catalog import ProviderFiles
    from infloop.providers import SHIPPED_DIR

    return (
        ProviderFiles(chosen.providers),
        ProviderFiles(chosen.connections, _connected_providers),
        ProviderFiles(SHIPPED_DIR),
    )


def _connected_providers(folder: Path) -> tuple[Sequence[Manifest], list[Problem]]:
    """Return the providers of all connections, and the problems of their files."""
    if not folder.is_dir():
        return [], []
    # Not above: most users have none, and their model takes 8 ms to load.
    from infloop.catalog.connections import connected_providers

    return connected_providers(folder)


def known_providers(chosen: Settings) -> list[str]:
    """Return the ids that an agent node can name."""
    return list(dict.fromkeys(name for folder in provider_folders(chosen) for name in folder.ids()))


def manifest_of(folders: Sequence[ProviderFiles], provider_id: str) -> Manifest | None:
    for folder in folders:
        found = folder.find(provider_id)
        if found is not None:
            return found
    return None
