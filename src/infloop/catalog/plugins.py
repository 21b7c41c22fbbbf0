"""The webhook plugins: those of a folder override the shipped ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.catalog.files import folder_state, read_folder
from infloop.model.plugin import GENERIC, parse_plugin, parse_shipped_plugin
from infloop.triggers import SHIPPED_DIR

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.catalog.files import FolderState
    from infloop.errors import Problem
    from infloop.model.plugin import Plugin


class PluginFiles:
    """Reads `<folder>/*.json`; changes take effect at once.

    A plugin of the folder replaces a shipped one with the same id, except `generic`. Of two files
    with one id the first is used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state: FolderState | None = None
        self._by_id: dict[str, Plugin] = {}
        self._problems: list[Problem] = []

    def find(self, plugin_id: str) -> Plugin | None:
        """Return one plugin, or None; called for every webhook request."""
        self._refresh()
        return self._by_id.get(plugin_id)

    def load(self) -> tuple[list[Plugin], list[Problem]]:
        """Return the valid plugins, the generic one first, and all problems of the folder."""
        self._refresh()
        plugins = sorted(
            self._by_id.values(), key=lambda one: (one.id != GENERIC, one.display_name.lower())
        )
        return plugins, list(self._problems)

    def _refresh(self) -> None:
        # Before reading, so that a change during the read is noticed next time.
        state = folder_state(self.folder)
        if self._by_id and state == self._state:
            return
        self._state = state
        shipped, _ = read_folder(SHIPPED_DIR, parse_shipped_plugin)
        own, self._problems = read_folder(self.folder, parse_plugin)
        self._by_id = {one.id: one for one in (*shipped, *reversed(own))}
