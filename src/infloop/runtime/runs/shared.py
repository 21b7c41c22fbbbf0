"""What the runs of one process share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.runtime.checkouts import RunCheckout
from infloop.runtime.confinement.workdirs import Workdirs
from infloop.runtime.event_bus import EventBus
from infloop.runtime.notifications import Notifications
from infloop.runtime.run_audit import RunAudit
from infloop.runtime.spending.ledger import Ledger
from infloop.runtime.stored_snapshots import StoredSnapshots

if TYPE_CHECKING:
    from infloop.model.clock import Clock
    from infloop.runtime.runs.dependencies import RunDependencies
    from infloop.runtime.timeline import WorkspaceHistory
    from infloop.runtime.workspaces import RunWorkspace
    from infloop.store.interfaces.liveness import Instance
    from infloop.store.interfaces.store import Store


class SharedResources(msgspec.Struct, frozen=True):
    """`dependencies` are given by the application; the rest belongs to this process.

    `dropped` are runs that this process may own and does not drive, because the store failed. They
    are recovered like those of a dead process.
    """

    store: Store
    instance: Instance
    clock: Clock
    dependencies: RunDependencies
    ledger: Ledger
    audit: RunAudit
    workdirs: Workdirs
    event_bus: EventBus
    notifications: Notifications
    dropped: set[str]


def share(
    store: Store, instance: Instance, clock: Clock, dependencies: RunDependencies
) -> SharedResources:
    redact = dependencies.redactor.secrets.redact
    event_bus = EventBus()
    notifications = Notifications(dependencies.notify, store.run_log, store.ledger, clock, redact)
    if dependencies.notify:
        event_bus.subscribe(notifications.watch)
    return SharedResources(
        store=store,
        instance=instance,
        clock=clock,
        dependencies=dependencies,
        ledger=Ledger(store.ledger, instance.id, clock, dependencies.budget, redact),
        audit=RunAudit(dependencies.audit, clock),
        workdirs=Workdirs(store.run_log, dependencies.data_device, instance.row.boot_id),
        event_bus=event_bus,
        notifications=notifications,
        dropped=set(),
    )


def run_workspace(
    shared: SharedResources, run_id: str, history: WorkspaceHistory | None
) -> RunWorkspace | None:
    """Return the workspace of a run; `history` is that of its checkout, if it has one."""
    workspaces = shared.dependencies.workspaces
    if workspaces is None or history is None:
        return workspaces.for_run(run_id) if workspaces else None
    stored = StoredSnapshots(workspaces, shared.store.run_log, shared.store.results)
    return workspaces.for_run(run_id, RunCheckout(workspaces, run_id, history, stored))
