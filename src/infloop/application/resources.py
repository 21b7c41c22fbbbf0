"""What the use cases work with. `app` wires it; surfaces do not see it."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from infloop.application.provider_logins import LoginStatus
    from infloop.application.trigger_firing import TriggerFiring
    from infloop.catalog import ProviderFiles, WorkflowCatalog
    from infloop.catalog.lookup import CatalogLookup
    from infloop.catalog.python_files import Built
    from infloop.model.agent_config import AgentConfig
    from infloop.model.check.context import Machine
    from infloop.model.clock import Clock
    from infloop.model.provider import AcpProvider, CliProvider, HttpProvider, Provider
    from infloop.model.values import JsonObject
    from infloop.policy.confinement import Confinement
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.policy.spending import Budget
    from infloop.providers.http.models import ModelList
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.store import Store
    from infloop.triggers.scheduler import Scheduler


class Folders:
    """Where files are found; `workdir` is where runs work unless the caller chooses.

    The catalogs are imported at their first use.
    """

    def __init__(
        self,
        *,
        workflows: Callable[[], WorkflowCatalog],
        providers: Callable[[], Sequence[ProviderFiles]],
        triggers: Callable[[], CatalogLookup],
        audit: Callable[[], Path],
        connections: Path,
        data: Path,
        dev: Path,
        home: Path,
        workdir: Path,
    ) -> None:
        self._workflows = workflows
        self._providers = providers
        self._triggers = triggers
        self._audit = audit
        self.connections = connections
        self.data = data
        self.dev = dev
        self.home = home
        self.workdir = workdir

    @cached_property
    def workflows(self) -> WorkflowCatalog:
        return self._workflows()

    @cached_property
    def providers(self) -> Sequence[ProviderFiles]:
        return self._providers()

    @cached_property
    def triggers(self) -> CatalogLookup:
        return self._triggers()

    @cached_property
    def audit(self) -> Path:
        return self._audit()

    def known_providers(self) -> Collection[str]:
        """Return the ids that an agent node can name; they are read when they are looked at."""
        return _ProviderIds(self)


class _ProviderIds(Collection[str]):
    """The ids of all providers. Most workflows that have no agent never ask for one."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    @cached_property
    def _ids(self) -> list[str]:
        found = (name for folder in self._folders.providers for name in folder.ids())
        return list(dict.fromkeys(found))

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


class FileResources(msgspec.Struct, frozen=True, kw_only=True):
    """What use cases need that work with files alone.

    `audit` opens the log at the first call. `program_of` returns the path of an agent's program,
    or an empty text if it is not installed; `version_of` asks a program for its version.
    `agent_config` returns the tables of the settings, and `is_set` tells whether a variable has a
    value; `config_error` says why the settings could not be read and are the defaults.
    `store_error` says why runs cannot be stored. `confinement` finds the level at which children
    run. `build` builds a workflow file in Python; a server has none, so that nothing there runs
    such a file. `machine` is what a check looks up: programs, directories. `firing` and `scheduler`
    exist in a server.
    """

    audit: Callable[[], AuditLog]
    clock: Clock
    folders: Folders
    version: str
    models_of: Callable[[HttpProvider], Awaitable[ModelList]]
    program_of: Callable[[AcpProvider | CliProvider], str]
    confinement: Callable[[], Awaitable[Confinement]]
    version_of: Callable[[str, Sequence[str]], Awaitable[str]]
    login_of: Callable[[Provider], LoginStatus]
    settings: Callable[[], JsonObject]
    agent_config: Callable[[], AgentConfig]
    is_set: Callable[[str], bool]
    store_error: Callable[[], Awaitable[str]]
    config_error: str = ""
    build: Callable[[str], Awaitable[Built]] | None = None
    machine: Machine | None = None
    firing: TriggerFiring | None = None
    scheduler: Scheduler | None = None


class Resources(FileResources, frozen=True, kw_only=True):
    """Everything that use cases are given.

    `service`, `workspaces`, `approvals` and `leaks` open what they return at the first call: a
    command that only reads pays for nothing else. `driving` is the service if it is open already.
    `leaks` is the guard that knows the secrets of this process.
    """

    store: Store
    budget: Budget
    service: Callable[[], Awaitable[RunService]]
    driving: Callable[[], RunService | None]
    workspaces: Callable[[], Awaitable[Workspaces]]
    approvals: Callable[[], Approvals]
    leaks: Callable[[], LeakGuard]
    dispatcher: Dispatcher | None = None

    def serving(self, firing: TriggerFiring, scheduler: Scheduler) -> Resources:
        """Return the same with what a server has besides: triggers that fire."""
        return replace(self, firing=firing, scheduler=scheduler)
