"""Webhooks that come together look at the disk once, and never see what is older than they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

from infloop.application.lookup_cache import OncePerTurn
from infloop.catalog.lookup import CatalogLookup
from infloop.catalog.plugins import PluginFiles
from infloop.catalog.triggers import TriggerFiles
from infloop.catalog.workflows import WorkflowCatalog
from infloop.model.plugin import Plugin
from infloop.model.trigger import Trigger
from infloop.model.workflow import Workflow

ID = "a" * 24


class Counted(CatalogLookup):
    """A lookup that counts how often it is asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            TriggerFiles(folder / "triggers"),
            PluginFiles(folder / "plugins"),
            WorkflowCatalog(folder / "workflows", folder / "library"),
        )
        self.asked: list[str] = []

    def trigger(self, trigger_id: str) -> Trigger | None:
        self.asked.append("trigger")
        return super().trigger(trigger_id)

    def plugin(self, plugin_id: str) -> Plugin | None:
        self.asked.append("plugin")
        return super().plugin(plugin_id)

    def workflow(self, workflow_id: str) -> Workflow | None:
        self.asked.append("workflow")
        return super().workflow(workflow_id)


async def test_what_is_judged_in_one_turn_looks_once(tmp_path: Path) -> None:
    lookup = Counted(tmp_path)
    looks = OncePerTurn(lookup)
    for _ in range(16):
        assert looks.trigger(ID) is None
        assert looks.plugin("generic") is not None
        assert looks.workflow("nobody") is None
    assert lookup.asked == ["trigger", "plugin", "workflow"]


async def test_the_next_turn_sees_what_has_changed(tmp_path: Path) -> None:
    lookup = Counted(tmp_path)
    looks = OncePerTurn(lookup)
    assert looks.trigger(ID) is None
    lookup.triggers.save(Trigger(id=ID, enabled=True, workflow_id="w"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert looks.trigger(ID) is not None
    lookup.triggers.remove(ID)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert looks.trigger(ID) is None
