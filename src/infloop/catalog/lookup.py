"""Looks up triggers, plugins and workflows for webhooks, as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.catalog.files import file_stats
from infloop.catalog.loop_files import LOOP_SUFFIXES
from infloop.catalog.workflows import SUFFIXES, is_workflow_id
from infloop.errors import UsageError, WorkflowError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.catalog.plugins import PluginFiles
    from infloop.catalog.triggers import TriggerFiles
    from infloop.catalog.workflows import WorkflowCatalog
    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger
    from infloop.model.workflow import Workflow

FileStats: TypeAlias = tuple[tuple[int, ...] | None, ...]


class _Cached(NamedTuple):
    """A workflow as it was read, its file, and the files that it names."""

    stats: FileStats
    workflow: Workflow | None
    named: dict[str, tuple[int, ...] | None]


class CatalogLookup:
    """Looks things up in folders; a workflow is read again when its file changes."""

    def __init__(
        self, triggers: TriggerFiles, plugins: PluginFiles, workflows: WorkflowCatalog
    ) -> None:
        self.triggers = triggers
        self.plugins = plugins
        self.workflows = workflows
        self._cache: dict[str, _Cached] = {}

    def trigger(self, trigger_id: str) -> Trigger | None:
        """Return the trigger, or None."""
        return self.triggers.find(trigger_id)

    def plugin(self, plugin_id: str) -> Plugin | None:
        """Return the plugin, or None."""
        return self.plugins.find(plugin_id)

    def fired(self, trigger_id: str, now_ms: int) -> None:
        """Record when the trigger last fired. May block while a small file is written."""
        self.triggers.fired(trigger_id, now_ms)

    def workflow(self, workflow_id: str) -> Workflow | None:
        """Return the workflow, or None if there is none that can run."""
        if not is_workflow_id(workflow_id):
            return None
        stats = self._file_stats(workflow_id)
        before = self._cache.get(workflow_id)
        if before is None or before.stats != stats or before.named != _stats_of(before.named):
            before = self._read(workflow_id, stats)
            self._cache[workflow_id] = before
        return before.workflow

    def _file_stats(self, workflow_id: str) -> FileStats:
        """Return a value that changes when the id means another file or other content."""
        found: list[tuple[int, ...] | None] = []
        for folder in (self.workflows.user_dir, self.workflows.library_dir):
            here = [
                file_stats(f"{folder}/{workflow_id}{suffix}")
                for suffix in (*SUFFIXES, *LOOP_SUFFIXES)
            ]
            found += here
            if any(here):
                break
        return tuple(found)

    def _read(self, workflow_id: str, stats: FileStats) -> _Cached:
        try:
            bundle = self.workflows.load_bundle(workflow_id)
        except (UsageError, WorkflowError):
            return _Cached(stats, None, {})
        return _Cached(stats, bundle.root, _stats_of(map(str, bundle.files)))


def _stats_of(paths: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    return {path: file_stats(path) for path in paths}
