"""What the application gives to the run service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.model.events import RunBudget
from infloop.nodes.base import Environment, Interpreters
from infloop.policy.spending import Budget
from infloop.runtime.confinement.disk_reserve import DiskReserve
from infloop.runtime.confinement.fence import EgressRules
from infloop.runtime.runs.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infloop.model.values import JsonObject
    from infloop.policy.hosts import Allowlist
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.policy.permissions import AskPerson
    from infloop.providers.base import Provider
    from infloop.providers.context import ReserveRequest
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.confinement.fence import MakeSandbox
    from infloop.runtime.confinement.homes import Homes
    from infloop.runtime.notifications import Deliver
    from infloop.runtime.runs.markers import RunMarkers
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.base import Sandbox
    from infloop.sandbox.keepers.child_records import ChildRecords
    from infloop.store.audit.log import AuditLog
    from infloop.store.dev_loops import RunningLoop
    from infloop.tools.gate import RecordCall

    FindProvider = Callable[[str, "StepServices"], Provider]
    """Returns the provider with an id, for one step."""


class StepServices(msgspec.Struct, frozen=True):
    """What a provider may use of the run of its step.

    make_sandbox  makes a sandbox for its children
    ask_person    asks a person; None if nobody can be asked
    record_call   writes a tool call to the audit log
    reserve       reserves a request to a model in the ledger
    leaks         removes secrets
    hosts         the hosts that the run may reach; None for all
    manifests     the manifests that the run carries, by provider id
    """

    make_sandbox: MakeSandbox
    ask_person: AskPerson | None
    record_call: RecordCall
    reserve: ReserveRequest
    leaks: LeakGuard
    hosts: Allowlist | None
    manifests: Mapping[str, JsonObject] = msgspec.field(default_factory=dict)


class RunDependencies(msgspec.Struct, frozen=True):
    """Given once for all runs of a process. What is None is not done:

    - `homes`: confined agents keep no home from one round to the next
    - `workspaces`: no worktrees, no snapshots
    - `child_records`: children are not recorded, so a crash can leave orphans
    - `markers`: no files for active runs
    - `audit`: runs are not in the audit log
    - `approvals`: nobody is asked

    `notify` delivers notifications about runs that end or wait.
    `interpreters` finds the programs that run scripts, once.
    `dev_loops` returns the development loops that run now.
    `data_device` is the device number of the data directory.
    """

    sandbox: Sandbox
    environment: Environment
    find_provider: FindProvider
    egress: EgressRules = msgspec.field(default_factory=EgressRules)
    service_user: tuple[int, int] | None = None
    homes: Homes | None = None
    interpreters: Callable[[], Interpreters] = Interpreters
    limits: RunBudget = msgspec.field(default_factory=RunBudget)
    budget: Budget = msgspec.field(default_factory=Budget)
    history_limit: int = 100
    max_output_bytes: int = 2 << 20
    max_command_ms: int = 7_200_000
    child_memory_bytes: int = 0
    disk_reserve: DiskReserve = msgspec.field(default_factory=DiskReserve)
    data_device: int = 0
    redactor: Redactor = msgspec.field(default_factory=Redactor)
    workspaces: Workspaces | None = None
    child_records: ChildRecords | None = None
    markers: RunMarkers | None = None
    audit: AuditLog | None = None
    approvals: Approvals | None = None
    notify: tuple[Deliver, ...] = ()
    dev_loops: Callable[[], Sequence[RunningLoop]] = tuple
