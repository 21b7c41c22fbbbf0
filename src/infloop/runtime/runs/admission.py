"""Checks that a run passes before it starts or goes on, and the fence it gets.

Every check raises an error that says what to do:

    BudgetError    all that may be spent is spent
    StoreError     too little space is left on the disk of the data directory
    GuardError     the working directory changed, does not answer, or its disk is full
    WorkflowError  children are not confined as the workflow or its cause requires
    UsageError     the run cannot be continued
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.errors import GuardError, UsageError, WorkflowError
from infloop.model.events import RepositoryRef
from infloop.model.repository_address import HEAD
from infloop.policy.confinement import Confinement, isolation_refusal
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
        self.confinement = Confinement(shared.dependencies.sandbox.level)

    async def check_resources(self) -> None:
        """Raise BudgetError or StoreError if no run may start at the moment."""
        await self._shared.ledger.check_budget()
        self._dependencies.disk_reserve.check_data_disk()

    async def check_start(self, definition: PreparedDefinition, workdir: str, cause: Cause) -> None:
        """Raise what the start of a run would be refused for now, except a used-up budget."""
        self._dependencies.disk_reserve.check_data_disk()
        self.check_confinement(definition, cause)
        if source := workspace_of(definition.workflow):
            self.check_workspace(source)
            return
        await self.check_directory(workdir)

    async def check_directory(self, workdir: str) -> None:
        """Raise GuardError if there is no directory at a path in which a run may work."""
        if (await self.enter(workdir)).id is None:
            raise GuardError(f"there is no directory {workdir!r} in which a run could work")

    def check_workspace(self, source: RepositoryRef) -> RepositoryRef:
        """Return the repository of a run; GuardError if it is not allowed on this machine."""
        workspaces = self._dependencies.workspaces
        if workspaces is None or not workspaces.snapshots:
            raise GuardError(
                "a run in a repository of its own needs snapshots, by which its results come back: "
                "INFLOOP_SNAPSHOTS=off takes none"
            )
        address = workspaces.mirrors.check(source.repository, source.ref)
        return RepositoryRef(address.url, source.ref)

    async def enter(self, workdir: str) -> Workdir:
        """Return the working directory of a new run; GuardError if no run may work there."""
        found = await self._shared.workdirs.enter(workdir)
        await self._check_disk(found)
        return found

    async def enter_again(self, run_id: str, workdir: str, original: DirectoryId | None) -> None:
        """Raise GuardError unless a run can go on in the directory in which it began."""
        await self._check_disk(await self._shared.workdirs.enter_again(run_id, workdir, original))

    async def _check_disk(self, found: Workdir) -> None:
        """Raise GuardError if the disk of a directory is too full; a step reports a missing one."""
        if found.id is not None:
            await self._dependencies.disk_reserve.check_disk(found.path, found.id.device)

    def check_confinement(self, definition: PreparedDefinition, cause: Cause) -> None:
        """Raise if children are not confined as the workflow, or its untrusted inputs, require."""
        if refusal := isolation_refusal(definition.workflow, self.confinement):
            raise WorkflowError(refusal)
        confined = self.confinement.is_confined
        found = definition.violations(tuple(cause.untrusted), confined=confined)
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
            homes=dependencies.workspaces.homes if dependencies.workspaces else frozenset(),
        )


def workspace_of(workflow: JsonObject) -> RepositoryRef | None:
    """Return the repository that a workflow names as its workspace."""
    named = workflow.get("workspace")
    if not isinstance(named, dict):
        return None
    return RepositoryRef(str(named.get("repository", "")), str(named.get("ref") or HEAD))


def check_not_imported(row: RunRow) -> None:
    if row.cause.kind == "import":
        raise UsageError(
            f"run {row.id!r} was imported: its record does not hold the workflow, so it can be "
            "shown and searched, and not be continued"
        )
