"""Looking things up once for many requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger
    from infloop.model.workflow import Workflow
    from infloop.triggers.webhook import Lookup

Found = TypeVar("Found")


class OncePerTurn:
    """A lookup that looks at each file at most once in a turn of the event loop.

    Requests that are judged in one turn had arrived before it began. So what one of them found is
    no older than any of them, and under load most of them need not look at the disk.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._triggers: dict[str, Trigger | None] = {}
        self._plugins: dict[str, Plugin | None] = {}
        self._workflows: dict[str, Workflow | None] = {}
        self._ends = False

    def trigger(self, trigger_id: str) -> Trigger | None:
        """Return the trigger, or None."""
        return self._once(self._triggers, self._lookup.trigger, trigger_id)

    def plugin(self, plugin_id: str) -> Plugin | None:
        """Return the plugin, or None."""
        return self._once(self._plugins, self._lookup.plugin, plugin_id)

    def workflow(self, workflow_id: str) -> Workflow | None:
        """Return the workflow, or None when there is none that could run."""
        return self._once(self._workflows, self._lookup.workflow, workflow_id)

    def _once(self, seen: dict[str, Found], look: Callable[[str], Found], name: str) -> Found:
        if name not in seen:
            seen[name] = look(name)
            if not self._ends:
                self._ends = True
                asyncio.get_running_loop().call_soon(self._end)
        return seen[name]

    def _end(self) -> None:
        self._ends = False
        for seen in (self._triggers, self._plugins, self._workflows):
            seen.clear()
