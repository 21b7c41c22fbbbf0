"""Opens the run service, worktrees and approvals."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.app.catalogs import provider_folders
from infloop.app.interpreters import find_interpreters
from infloop.app.process import (
    by_commas,
    child_source_environment,
    git_credentials,
    git_environment,
    home_of,
    repository_prefixes,
)
from infloop.app.providers import provider_finder
from infloop.app.sandbox import OpenedSandbox, children_user, open_sandbox
from infloop.app.storage import SESSIONS_DIR, open_audit, open_store, token_file
from infloop.errors import SettingsError, StepError, StoreError
from infloop.model.events import RunBudget
from infloop.policy.environment import ChildEnvironment, parse_passthrough
from infloop.policy.spending import Budget
from infloop.settings import SECRETS, Settings, home_directory, password_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from infloop.catalog.triggers import TriggerFiles
    from infloop.model.approval import Approval
    from infloop.model.trigger import Trigger
    from infloop.policy.leaks.known import Secret
    from infloop.policy.leaks.rules import LeakRule
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.notifications import Deliver
    from infloop.runtime.runs.dispatch import Capacity
    from infloop.runtime.runs.redaction import Redactor
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.base import Sandbox
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.liveness import ProcessKind
    from infloop.store.interfaces.store import Store


@asynccontextmanager
async def open_service(
    chosen: Settings,
    audit: AuditLog | None = None,
    opened_store: Store | None = None,
    kind: ProcessKind = "run",
) -> AsyncIterator[RunService]:
    """Open everything that is needed to drive runs, and close it again.

    `audit` and `opened_store` are given if this process has them open already.
    """
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.confinement.disk_reserve import DiskReserve
    from infloop.runtime.confinement.fence import EgressRules
    from infloop.runtime.confinement.homes import Homes
    from infloop.runtime.confinement.programs import confined_in
    from infloop.runtime.runs.dependencies import RunDependencies
    from infloop.runtime.runs.dispatch import Capacity
    from infloop.runtime.runs.markers import RunMarkers
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.keepers.child_records import ChildRecords
    from infloop.sandbox.kernel.hardening import hide_from_children
    from infloop.sandbox.kernel.resource_limits import memory_here
    from infloop.sandbox.levels.host import HostSandbox
    from infloop.store.dev_loops import running_loops

    hide_from_children()
    clock = SystemClock()
    passthrough = parse_passthrough(chosen.child_env_passthrough)
    async with (
        nullcontext(audit) if audit else open_audit(chosen) as log,
        nullcontext(opened_store) if opened_store else open_store(chosen) as store,
        open_sandbox(chosen) as opened,
    ):
        user = opened.user
        environment = ChildEnvironment(child_source_environment(user), passthrough)
        own = HostSandbox()  # for infloop's own git, and for the operator's command
        reserve = DiskReserve(str(chosen.data_dir), chosen.min_free_disk_bytes)
        workspaces = Workspaces(
            chosen.data_dir,
            own,
            (home_directory(), home_of(user)),
            snapshots=chosen.snapshots,
            confine=confined_in(_already_open(opened)) if opened.sandbox.confines else None,
            user=user,
            shortage=reserve.shortage,
            git_environment=git_environment(),
            repositories=repository_prefixes(chosen),
            credentials=git_credentials(chosen),
        )
        takes = capacity_of(chosen) if kind != "run" else Capacity(0)
        instance = await store.liveness.register(
            kind, labels=sorted(takes.labels), capacity=takes.runs
        )
        records = ChildRecords(chosen.data_dir / "pids", instance.id)
        markers = RunMarkers(chosen.data_dir / "active-runs", instance.row)
        try:
            dependencies = RunDependencies(
                sandbox=opened.sandbox,
                homes=Homes(
                    (Path(opened.scratch) if user else chosen.data_dir).resolve() / "homes", user
                ),
                environment=environment,
                find_provider=provider_finder(chosen, passthrough, opened),
                egress=EgressRules(
                    chosen.egress_enforce,
                    by_commas(chosen.egress_allowlist),
                    by_commas(chosen.egress_denylist),
                ),
                service_user=user,
                interpreters=cache(partial(find_interpreters, chosen)),
                limits=RunBudget(
                    chosen.max_run_node_executions,
                    chosen.max_run_duration_ms,
                    chosen.max_run_cost_usd,
                ),
                budget=total_budget(chosen),
                history_limit=chosen.run_history_limit,
                max_output_bytes=chosen.max_output_bytes,
                max_command_ms=chosen.max_command_ms,
                child_memory_bytes=chosen.max_child_memory_bytes or memory_here() * 3 // 4,
                disk_reserve=reserve,
                data_device=chosen.data_dir.stat().st_dev,
                redactor=make_redactor(chosen),
                workspaces=workspaces,
                child_records=records,
                markers=markers,
                audit=log,
                approvals=make_approvals(chosen, store, log),
                dev_loops=partial(running_loops, chosen.dev_loops),
                notify=_notify(chosen, own, ChildEnvironment(os.environ, passthrough)()),
            )
            async with RunService(store, instance, clock, dependencies) as service:
                yield service
        finally:
            workspaces.close()
            await own.close()
            records.close()
            markers.close()
            await instance.close()


def _notify(chosen: Settings, sandbox: Sandbox, env: dict[str, str]) -> tuple[Deliver, ...]:
    """Return what delivers notifications, as the operator has chosen."""
    from infloop.runtime.notifications import to_address, to_command

    made: list[Deliver] = []
    if chosen.notify_command:
        made.append(to_command(chosen.notify_command, sandbox, env, str(chosen.data_dir)))
    if chosen.notify_url:
        made.append(to_address(chosen.notify_url, chosen.notify_secret))
    return tuple(made)


def capacity_of(chosen: Settings) -> Capacity:
    """Return which queued runs this process takes, and how many; SettingsError for bad labels."""
    from infloop.model.texts import LABEL_RULE, is_label
    from infloop.runtime.runs.dispatch import Capacity

    labels = by_commas(chosen.worker_labels)
    for label in labels:
        if not is_label(label):
            raise SettingsError(f"{label!r} is not a label; {LABEL_RULE}")
    return Capacity(chosen.max_concurrent_runs, chosen.queue_limit, frozenset(labels))


def total_budget(chosen: Settings) -> Budget:
    return Budget(
        chosen.max_total_cost_usd,
        chosen.cost_window,
        chosen.require_known_cost,
        chosen.unpriced_usd_per_mtok,
    )


def make_redactor(chosen: Settings) -> Redactor:
    """Return what finds the secrets of this process, as the operator has chosen."""
    from infloop.runtime.runs.redaction import Redactor

    return Redactor(known_secrets(chosen), _leak_rules, chosen.leaks_mode)


def _leak_rules() -> Sequence[LeakRule]:
    from infloop.policy.leaks.rules import shipped_rules

    return shipped_rules()


def known_secrets(chosen: Settings) -> Callable[[], list[Secret]]:
    """Return a function that returns all secrets of this process at the time of the call."""
    from infloop.application.sessions import KEY_FILE
    from infloop.catalog.secrets import FileSecrets
    from infloop.policy.credential_names import key_variables
    from infloop.policy.leaks.known import Secret
    from infloop.policy.leaks.variables import secret_values
    from infloop.store.secret_file import read_secret

    @cache
    def trigger_files() -> TriggerFiles:
        # Imported only if there are triggers: it takes ten milliseconds.
        from infloop.catalog.triggers import TriggerFiles

        return TriggerFiles(chosen.triggers)

    def triggers() -> list[Trigger]:
        return trigger_files().all() if chosen.triggers.is_dir() else []

    def made_by_server() -> Iterator[Secret]:
        """Yield what `infloop serve` made for itself, in this process or in another."""
        for file in (token_file(chosen), chosen.data_dir / SESSIONS_DIR / KEY_FILE):
            with suppress(StoreError):
                yield Secret("server", read_secret(file) or "")

    own = [Secret(f"setting:{name}", getattr(chosen, name)) for name in SECRETS]
    own += [Secret("setting:database", part) for part in password_of(chosen.database)]
    folders = provider_folders(chosen)[:-1]  # the last is shipped with infloop: no secrets
    filed = FileSecrets(triggers, folders, os.environ)

    def in_environment() -> Iterator[Secret]:
        """Yield the variables that are secrets, also those that the tables of the settings name."""
        yield from secret_values(os.environ)
        for _, name in key_variables(chosen.agent_config):
            yield Secret(f"env:{name}", os.environ.get(name, ""))

    return lambda: [*own, *in_environment(), *filed.values(), *made_by_server()]


def make_approvals(chosen: Settings, store: Store, audit: AuditLog) -> Approvals:
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.clock import SystemClock

    def missed() -> list[Approval]:
        from infloop.catalog.triggers import TriggerFiles
        from infloop.triggers.questions import missed_schedules
        from infloop.triggers.scheduler import STATE_FILE, ScheduleStates

        marks = ScheduleStates(chosen.triggers / STATE_FILE).load()
        return missed_schedules(TriggerFiles(chosen.triggers).all(), marks) if marks else []

    return Approvals(
        store.approvals,
        store.run_log,
        store.liveness,
        SystemClock(),
        audit,
        timeout_ms=chosen.approval_timeout_ms,
        missed=missed,
    )


@asynccontextmanager
async def open_workspaces(chosen: Settings) -> AsyncIterator[Workspaces]:
    """Open the worktrees and snapshots, for commands that show or apply them."""
    from infloop.runtime.confinement.programs import confined_in
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.levels.host import HostSandbox

    own = HostSandbox()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(own.close)
        user = await children_user(chosen)
        workspaces = Workspaces(
            chosen.data_dir,
            own,
            (home_directory(), home_of(user)),
            snapshots=chosen.snapshots,
            confine=confined_in(_open_when_needed(chosen, stack)),
            user=user,
            git_environment=git_environment(),
            repositories=repository_prefixes(chosen),
            credentials=git_credentials(chosen),
        )
        stack.callback(workspaces.close)
        yield workspaces


def _already_open(opened: OpenedSandbox) -> Callable[[], Awaitable[Sandbox]]:
    async def find() -> Sandbox:
        return opened.sandbox

    return find


def _open_when_needed(chosen: Settings, stack: AsyncExitStack) -> Callable[[], Awaitable[Sandbox]]:
    """Return a function that opens a confining sandbox once; the stack closes it."""
    found: list[Sandbox] = []

    async def find() -> Sandbox:
        if not found:
            opened = await stack.enter_async_context(open_sandbox(chosen))
            found.append(opened.sandbox)
        if not found[0].confines:
            raise StepError(f"level {found[0].level!r} confines nothing; see `infloop doctor`")
        return found[0]

    return find
