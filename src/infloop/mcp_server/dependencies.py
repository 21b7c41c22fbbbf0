"""What the tools are made of, given by the application."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infloop.mcp_server.slots import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from infloop.catalog import WorkflowCatalog
    from infloop.runtime.clock import Clock
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.audit.log import AuditLog

MOST_WAITS = 64
"""How many calls may wait for runs at once, of all clients together."""


@dataclass(frozen=True, slots=True)
class McpParts:
    """Everything that tools are handed; runs work in `workdir`."""

    service: RunService
    dispatcher: Dispatcher
    workspaces: Workspaces
    audit: AuditLog
    clock: Clock
    workflows: WorkflowCatalog
    known_providers: Callable[[], Collection[str]]
    workdir: str
    version: str
    waits: Places = field(default_factory=lambda: Places(MOST_WAITS))
