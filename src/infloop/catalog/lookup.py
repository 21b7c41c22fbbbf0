"""Looks up triggers, plugins and workflows for webhooks, as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from infloop.catalog.files import file_stats
from infloop.catalog.workflows import SUFFIXES, is_workflow_id
from infloop.errors import UsageError, WorkflowError

if TYPE_CHECKING:
    from infloop.catalog.plugins import PluginFiles
    from infloop.catalog.triggers import TriggerFiles
    from infloop.catalog.workflows import WorkflowCatalog
    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger
    from infloop.model.workflow import Workflow

FileStats: TypeAlias = tuple[tuple[int, ...] | None, ...]


class CatalogLookup:
    """Looks things up in folders; a workflow is read again when its file changes."""

    def __init__(
        self, triggers: TriggerFiles, plugins: PluginFiles, workflows: WorkflowCatalog
    ) -> None:
        self.triggers = triggers
        self.plugins = plugins
        self.workflows = workflows
        self._cache: dict[str, tuple[FileStats, Workflow | None]] = {}

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
        if before is None or before[0] != stats:
            before = stats, self._read(workflow_id)
            self._cache[workflow_id] = before
        return before[1]

    def _file_stats(self, workflow_id: str) -> FileStats:
        """Return a value that changes when the id means another file or other content."""
        found: list[tuple[int, ...] | None] = []
        for folder in (self.workflows.user_dir, self.workflows.library_dir):
            for suffix in SUFFIXES:
                found.append(file_stats(f"{folder}/{workflow_id}{suffix}"))
                if found[-1] is not None:
                    return tuple(found)
        return tuple(found)

    def _read(self, workflow_id: str) -> Workflow | None:
        try:
            return self.workflows.load_bundle(workflow_id).root
        except (UsageError, WorkflowError):
            return None
