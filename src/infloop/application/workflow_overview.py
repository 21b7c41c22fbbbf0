"""All workflows, each with its last run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from infloop.application.agent_choice import suggestion
from infloop.application.models import Model
from infloop.application.runs.models import RunStatus
from infloop.application.workflows import WorkflowEntry
from infloop.errors import NotFound

if TYPE_CHECKING:
    from infloop.application.runs.history import RunHistory
    from infloop.application.workflows import Workflows


class LastRun(Model, kw_only=True):
    """The newest run of a workflow."""

    run_id: str
    status: RunStatus
    started_at: int
    finished_at: int | None


class ListedWorkflow(WorkflowEntry, kw_only=True):
    """A workflow in a list, with its last run if it has one."""

    last_run: LastRun | UnsetType = UNSET


class WorkflowOverviewList(Model, kw_only=True):
    """All workflows, newest first; yours hide presets of the same id."""

    workflows: list[ListedWorkflow]


class WorkflowOverview:
    """Joins the workflow files and the history."""

    def __init__(self, workflows: Workflows, history: RunHistory) -> None:
        self._workflows = workflows
        self._history = history

    async def all(self) -> WorkflowOverviewList:
        found = (await self._workflows.all()).workflows
        return WorkflowOverviewList(workflows=[await self._listed(one) for one in found])

    async def find(self, workflow_id: str) -> ListedWorkflow:
        """Return one workflow. Raises NotFound."""
        found = {one.id: one for one in (await self._workflows.all()).workflows}
        if workflow_id not in found:
            raise NotFound(
                f"there is no workflow {workflow_id[:80]!r}{suggestion(workflow_id, found)}"
            )
        return await self._listed(found[workflow_id])

    async def _listed(self, entry: WorkflowEntry) -> ListedWorkflow:
        page = await self._history.page(workflow_id=entry.id, limit=1)
        return ListedWorkflow(
            **asdict(entry),
            last_run=UNSET
            if not page.runs
            else LastRun(
                run_id=page.runs[0].run_id,
                status=page.runs[0].status,
                started_at=page.runs[0].started_at,
                finished_at=page.runs[0].finished_at,
            ),
        )
