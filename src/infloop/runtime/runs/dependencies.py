"""What runs are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infloop.model.events import RunBudget
from infloop.nodes.base import Environment, Interpreters
from infloop.policy.spending import Budget
from infloop.runtime.confinement.disk_reserve import Reserve
from infloop.runtime.confinement.fence import EgressRules
from infloop.runtime.runs.redaction import LeakGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.providers.approval_requests import AskPerson
    from infloop.providers.base import Provider
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.confinement.fence import Around
    from infloop.runtime.confinement.homes import Homes
    from infloop.runtime.runs.markers import RunMarkers
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.base import Sandbox
    from infloop.sandbox.keepers.child_records import ChildRecords
    from infloop.store.audit.log import AuditLog


@dataclass(frozen=True, slots=True)
class Parts:
    """Given by the application, once for all runs.

    Without `workspaces` there are no worktrees, and no snapshots are taken; without `records`,
    children are not on record; without `markers`, nor are runs under way; without `audit`, runs
    are not in the audit log. `why_host` says why children are not confined although nobody asked
    for that. `own_device` is that of the data directory.
    """

    sandbox: Sandbox
    environment: Environment
    provider: Callable[[str, Around, AskPerson | None], Provider]
    egress: EgressRules = field(default_factory=EgressRules)
    service_user: tuple[int, int] | None = None
    why_host: str = ""
    homes: Homes | None = None
    interpreters: Interpreters = field(default_factory=Interpreters)
    limits: RunBudget = field(default_factory=RunBudget)
    budget: Budget = field(default_factory=Budget)
    history_limit: int = 100
    max_output_bytes: int = 2 << 20
    max_command_ms: int = 7_200_000
    child_memory_bytes: int = 0
    reserve: Reserve = field(default_factory=Reserve)
    own_device: int = 0
    leaks: LeakGuard = field(default_factory=LeakGuard)
    workspaces: Workspaces | None = None
    records: ChildRecords | None = None
    markers: RunMarkers | None = None
    audit: AuditLog | None = None
    approvals: Approvals | None = None
