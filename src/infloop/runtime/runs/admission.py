"""Checks that a run passes before it starts or goes on, and the fence it gets.

Every check raises an error that says what to do:

    BudgetError    all that may be spent is spent
    StoreError     too little space is left on the disk of the data directory
    GuardError     the working directory changed, does not answer, or its disk is full
    WorkflowError  children are not confined as the workflow or its cause requires
    UsageError     the run cannot be continued
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import UsageError, WorkflowError
from infloop.model.isolation import is_at_least
from infloop.policy.taint import violations_message
from infloop.runtime.confinement.fence import RunFence
from infloop.runtime.runs.run_status import current_status

if TYPE_CHECKING:
    from infloop.model.events import Cause, DirectoryId
    from infloop.model.values import JsonObject
    from infloop.runtime.confinement.workdirs import Workdir
    from infloop.runtime.runs.definitions import PreparedDefinition
    from infloop.runtime.runs.shared import SharedResources
    from infloop.runtime.workspaces import RunWorkspace
    from infloop.store.interfaces.run_log import RunRow


class Admission:
    """Decides whether a run may start in this process."""

    def __init__(self, shared: SharedResources) -> None:
        self._shared = shared
        self._dependencies = shared.dependencies

    async def check_resources(self) -> None:
        """Raise BudgetError or StoreError if no run may start at the moment."""
        await self._shared.ledger.check_budget()
        self._dependencies.disk_reserve.check_data_disk()

    async def enter(self, workdir: str) -> Workdir:
        """Return the working directory of a new run; GuardError if no run may work there."""
        found = await self._shared.workdirs.enter(workdir)
        await self._dependencies.disk_reserve.check_directory(found.path)
        return found

    async def enter_again(self, run_id: str, workdir: str, original: DirectoryId | None) -> None:
        """Raise GuardError unless a run can go on in the directory in which it began."""
        await self._shared.workdirs.enter_again(run_id, workdir, original)
        await self._dependencies.disk_reserve.check_directory(workdir)

    def check_isolation(self, workflow: JsonObject) -> None:
        """Raise if the workflow asks for a stronger isolation than this process can give."""
        wanted, level = workflow.get("isolation") or "auto", self._dependencies.sandbox.level
        if wanted == "auto" or is_at_least(level, str(wanted)):
            return
        reason = self._dependencies.unconfined_reason
        raise WorkflowError(
            f"workflow {workflow['id']!r} asks for isolation {wanted!r}, and children run at "
            f"{level!r} here{f' ({reason})' if reason else ''}; see `infloop doctor`, or remove "
            "`isolation` from the workflow"
        )

    def check_untrusted(self, definition: PreparedDefinition, cause: Cause) -> None:
        """Raise if an untrusted input would reach a node that it must not reach."""
        unconfined = self._dependencies.unconfined_reason
        if cause.from_outside and unconfined:
            raise WorkflowError(
                "a run that is started from outside needs confined children, and they are not "
                f"confined here: {unconfined}. INFLOOP_ISOLATION=host allows them to run as you"
            )
        found = definition.violations(tuple(cause.untrusted), confined=not unconfined)
        if found:
            raise WorkflowError(violations_message(found))

    async def check_not_driven(self, row: RunRow, *, take_over: bool = False) -> None:
        """Raise if the run's process is alive, or may be alive and `take_over` is not set."""
        status = await current_status(row, self._shared.store.liveness)
        if status == "running":
            raise UsageError(
                f"run {row.id!r} is running in another process; `infloop logs --follow {row.id}` "
                f"shows it, `infloop cancel {row.id}` stops it"
            )
        if status == "stalled" and not take_over:
            raise UsageError(
                f"run {row.id!r} belongs to a process that exists but gives no sign of life; "
                "end that process, or add --take-over: it can then write nothing more"
            )

    def fence(
        self, run_id: str, workflow: JsonObject, workspace: RunWorkspace | None, cause: Cause
    ) -> RunFence:
        """Return the fence of a run; untrusted input always enforces the egress allowlist."""
        dependencies = self._dependencies
        untrusted = cause.from_outside or bool(cause.untrusted)
        return RunFence(
            dependencies.sandbox,
            replace(dependencies.egress, enforce=dependencies.egress.enforce or untrusted),
            workflow,
            user=dependencies.service_user,
            make_home=partial(dependencies.homes.make, run_id) if dependencies.homes else None,
            git_protection=workspace.git_protection(dependencies.sandbox) if workspace else None,
            disks=dependencies.disk_reserve.for_run(),
            memory_bytes=dependencies.child_memory_bytes,
        )


def check_not_imported(row: RunRow) -> None:
    if row.cause.kind == "import":
        raise UsageError(
            f"run {row.id!r} was imported: its record does not hold the workflow, so it can be "
            "shown and searched, and not be continued"
        )
