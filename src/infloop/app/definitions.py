"""Loads workflows for the queue: what a run of one executes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.app.catalogs import manifest_of, provider_folders, workflow_catalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from infloop.catalog import ProviderFiles
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.definitions import PreparedDefinition
    from infloop.settings import Settings


def _portable_manifests(folders: Sequence[ProviderFiles], named: set[str]) -> dict[str, JsonObject]:
    """Return the operator's manifests with these ids that hold no secret."""
    found = (manifest_of(folders, name) for name in sorted(named))
    return {each.id: each.to_json() for each in found if each is not None and each.is_portable}


def definition_loader(chosen: Settings) -> Callable[[str], Awaitable[PreparedDefinition]]:
    """Return a function that loads a workflow by its id; it is read again when files change."""
    from infloop.catalog.files import file_stats, folder_state
    from infloop.catalog.workflows import FILE_SUFFIXES
    from infloop.engine.graph import Definition
    from infloop.model.references import provider_ids
    from infloop.runtime.runs.definitions import prepare

    catalog, folders = workflow_catalog(chosen), provider_folders(chosen)
    # By id: the state of the folders, that of the files which the workflows name, and the result.
    cache: dict[str, tuple[object, dict[str, object], PreparedDefinition]] = {}

    def read(
        workflow_id: str, known: frozenset[str]
    ) -> tuple[dict[str, object], PreparedDefinition]:
        bundle = catalog.load_bundle(workflow_id, known_providers=known)
        named: dict[str, object] = {str(path): file_stats(str(path)) for path in bundle.files}
        plain = bundle.plain()
        # The last folder comes with infloop, so it is on every machine.
        carried = _portable_manifests(folders[:-1], provider_ids(plain))
        return named, prepare(Definition(bundle.root.id, plain, carried))

    def is_current(named: dict[str, object]) -> bool:
        return all(file_stats(path) == before for path, before in named.items())

    async def load(workflow_id: str) -> PreparedDefinition:
        # This check takes less time than a change of thread.
        known = frozenset(name for folder in folders for name in folder.ids())
        user = folder_state(catalog.user_dir, FILE_SUFFIXES)
        library = folder_state(catalog.library_dir, FILE_SUFFIXES)
        manifests = tuple(folder.state for folder in folders[:-1])
        state = user, library, known, manifests
        cached = cache.get(workflow_id)
        if cached is None or cached[0] != state or None in state or not is_current(cached[1]):
            cached = state, *await asyncio.to_thread(read, workflow_id, known)
            cache[workflow_id] = cached
        return cached[2]

    return load
