"""The object that every surface is given: one attribute for each subject.

A subject is imported when it is first used, so a command pays only for what it needs.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.application.agents import Agents
    from infloop.application.approvals import Approvals
    from infloop.application.attacks import Attacks
    from infloop.application.audit import AuditTrail
    from infloop.application.catalog import Catalog
    from infloop.application.configuration import Configuration
    from infloop.application.connections import Connections
    from infloop.application.costs import Costs
    from infloop.application.demo import Demo
    from infloop.application.dev_loops import DevLoops
    from infloop.application.dev_restarts import DevRestarts
    from infloop.application.folders import Folders
    from infloop.application.health import HealthChecks
    from infloop.application.importing import Importing
    from infloop.application.login import Logins
    from infloop.application.loops import Loops
    from infloop.application.moving import Moving
    from infloop.application.providers import Providers
    from infloop.application.refused_access import RefusedAccess
    from infloop.application.resources import FileResources, Resources
    from infloop.application.runs.apply import ApplyChanges
    from infloop.application.runs.control import Runs
    from infloop.application.runs.explain import Explanations
    from infloop.application.runs.history import RunHistory
    from infloop.application.runs.live import Live
    from infloop.application.runs.queue import RunQueue
    from infloop.application.runs.records import RunRecords
    from infloop.application.runs.worktrees import Worktrees
    from infloop.application.triggers import Triggers
    from infloop.application.workers import Workers
    from infloop.application.workflow_drafts import WorkflowDrafts
    from infloop.application.workflow_overview import WorkflowOverview
    from infloop.application.workflows import Workflows
    from infloop.model.agent_config import AgentConfig
    from infloop.model.clock import Clock
    from infloop.model.values import JsonObject


class FileApplication:
    """The use cases that work with files alone, without a store."""

    def __init__(self, resources: FileResources) -> None:
        self._file_resources = resources

    @property
    def version(self) -> str:
        return self._file_resources.version

    @property
    def clock(self) -> Clock:
        return self._file_resources.clock

    @property
    def settings(self) -> JsonObject:
        """The operator's settings by name; of a secret only whether it is set."""
        values = self._file_resources.settings()["values"]
        assert isinstance(values, dict)
        return values

    @property
    def agent_config(self) -> AgentConfig:
        """The tables of the settings."""
        return self._file_resources.agent_config()

    @property
    def config_error(self) -> str:
        """Why the settings could not be read and are the defaults; empty if they were."""
        return self._file_resources.config_error

    async def store_error(self) -> str:
        """Return why runs cannot be stored; empty if they can."""
        return await self._file_resources.store_error()

    def is_set(self, variable: str) -> bool:
        """Tell whether a variable has a value."""
        return self._file_resources.is_set(variable)

    @cached_property
    def audit(self) -> AuditTrail:
        from infloop.application.audit import AuditTrail

        return AuditTrail(self._file_resources)

    @cached_property
    def catalog(self) -> Catalog:
        from infloop.application.catalog import Catalog

        return Catalog(self._file_resources)

    @cached_property
    def configuration(self) -> Configuration:
        from infloop.application.configuration import Configuration

        return Configuration(self._file_resources)

    @cached_property
    def connections(self) -> Connections:
        from infloop.application.connections import Connections

        return Connections(self._file_resources)

    @cached_property
    def dev_loops(self) -> DevLoops:
        from infloop.application.dev_loops import DevLoops

        return DevLoops(self._file_resources)

    @cached_property
    def folders(self) -> Folders:
        from infloop.application.folders import Folders

        return Folders(self._file_resources)

    @cached_property
    def agents(self) -> Agents:
        from infloop.application.agents import Agents

        return Agents(self._file_resources)

    @cached_property
    def loops(self) -> Loops:
        from infloop.application.loops import Loops

        return Loops(self._file_resources)

    @cached_property
    def moving(self) -> Moving:
        from infloop.application.moving import Moving

        return Moving(self._file_resources)

    @cached_property
    def providers(self) -> Providers:
        from infloop.application.providers import Providers

        return Providers(self._file_resources)

    @cached_property
    def triggers(self) -> Triggers:
        from infloop.application.triggers import Triggers

        return Triggers(self._file_resources)

    @cached_property
    def workflows(self) -> Workflows:
        from infloop.application.workflows import Workflows

        return Workflows(self._file_resources)

    @cached_property
    def workflow_drafts(self) -> WorkflowDrafts:
        from infloop.application.workflow_drafts import WorkflowDrafts

        return WorkflowDrafts(self._file_resources, self.loops)


class Application(FileApplication):
    """All use cases."""

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._resources = resources

    @cached_property
    def history(self) -> RunHistory:
        from infloop.application.runs.history import RunHistory

        return RunHistory(self._resources)

    @cached_property
    def explanations(self) -> Explanations:
        from infloop.application.runs.explain import Explanations

        return Explanations(self._resources, self.history)

    @cached_property
    def records(self) -> RunRecords:
        from infloop.application.runs.records import RunRecords

        return RunRecords(self._resources, self.history)

    @cached_property
    def importing(self) -> Importing:
        from infloop.application.importing import Importing

        return Importing(self._resources, self.records, self.triggers)

    @cached_property
    def queue(self) -> RunQueue:
        from infloop.application.runs.queue import RunQueue

        return RunQueue(self._resources)

    @cached_property
    def runs(self) -> Runs:
        from infloop.application.runs.control import Runs

        return Runs(self._resources, self.history, self.queue)

    @cached_property
    def live(self) -> Live:
        from infloop.application.runs.live import Live

        return Live(self._resources, self.history)

    @cached_property
    def approvals(self) -> Approvals:
        from infloop.application.approvals import Approvals

        return Approvals(self._resources)

    @cached_property
    def demo(self) -> Demo:
        from infloop.application.demo import Demo

        return Demo(self._resources, self.loops, self.workflows, self.runs)

    @cached_property
    def attacks(self) -> Attacks:
        from infloop.application.attacks import Attacks

        return Attacks(self._resources, str(self.settings["service_user"]))

    @cached_property
    def dev_restarts(self) -> DevRestarts:
        from infloop.application.dev_restarts import DevRestarts

        return DevRestarts(self._resources, self.dev_loops)

    @cached_property
    def costs(self) -> Costs:
        from infloop.application.costs import Costs

        return Costs(self._resources)

    @cached_property
    def apply(self) -> ApplyChanges:
        from infloop.application.runs.apply import ApplyChanges

        return ApplyChanges(self._resources)

    @cached_property
    def workflow_overview(self) -> WorkflowOverview:
        from infloop.application.workflow_overview import WorkflowOverview

        return WorkflowOverview(self.workflows, self.history)

    @cached_property
    def worktrees(self) -> Worktrees:
        from infloop.application.runs.worktrees import Worktrees

        return Worktrees(self._resources)

    @cached_property
    def workers(self) -> Workers:
        from infloop.application.workers import Workers

        return Workers(self._resources)

    @cached_property
    def health(self) -> HealthChecks:
        from infloop.application.health import HealthChecks

        return HealthChecks(self._resources)

    @cached_property
    def refused_access(self) -> RefusedAccess:
        from infloop.application.refused_access import RefusedAccess

        return RefusedAccess(self._resources)

    def logins(self, token: str, per_minute: int) -> Logins:
        """Return the logins with one token."""
        from infloop.application.login import Logins

        return Logins(self._resources, token, per_minute)
