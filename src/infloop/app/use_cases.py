"""Opens the application layer: for the command line everything lazily, for a server all at once."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.app.building import build_python_file
from infloop.app.catalogs import provider_folders, trigger_lookup, workflow_catalog
from infloop.app.interpreters import ThisMachine
from infloop.app.process import home_of, service_user
from infloop.app.runs import (
    make_approvals,
    make_redactor,
    open_service,
    open_workspaces,
    total_budget,
)
from infloop.app.sandbox import confinement_here, version_of
from infloop.app.storage import audit_dir, make_audit, open_store, why_no_store
from infloop.settings import Settings, home_directory, shown_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from infloop.application.application import Application, FileApplication
    from infloop.application.provider_logins import LoginStatus
    from infloop.application.resources import Folders, Resources
    from infloop.model.clock import Clock
    from infloop.model.provider import AcpProvider, CliProvider, HttpProvider, Provider
    from infloop.policy.confinement import Confinement
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.providers.http.models import ModelList
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.store import Store


@asynccontextmanager
async def open_files(chosen: Settings, config_error: str = "") -> AsyncIterator[FileApplication]:
    """Open the use cases that work with files alone, for a command that needs no store.

    `config_error` says why the settings could not be read.
    """
    from infloop import __version__
    from infloop.application.application import FileApplication
    from infloop.application.resources import FileResources
    from infloop.runtime.clock import SystemClock

    async with AsyncExitStack() as stack:
        yield FileApplication(
            FileResources(
                audit=_lazy_audit(chosen, stack),
                clock=SystemClock(),
                folders=folders(chosen),
                version=__version__,
                models_of=_models_of,
                program_of=_program_of,
                confinement=partial(confinement_here, chosen),
                version_of=version_of,
                login_of=partial(_login_of, chosen),
                agent_config=lambda: chosen.agent_config,
                is_set=_is_set,
                settings=partial(shown_settings, chosen),
                store_error=partial(why_no_store, chosen),
                config_error=config_error,
                build=partial(build_python_file, chosen),
                machine=ThisMachine(chosen),
            )
        )


@asynccontextmanager
async def open_application(
    chosen: Settings,
    opening: Callable[[Settings], AbstractAsyncContextManager[Store]] = open_store,
) -> AsyncIterator[Application]:
    """Open the use cases for one command: the store at once, everything else when it is used.

    `opening` opens the store.
    """
    from infloop import __version__
    from infloop.application.application import Application
    from infloop.application.resources import Resources
    from infloop.runtime.clock import SystemClock

    async with AsyncExitStack() as stack:
        audit = _lazy_audit(chosen, stack)
        store = await stack.enter_async_context(opening(chosen))
        services: list[RunService] = []
        opened: list[Workspaces] = []
        questions: list[Approvals] = []

        async def service() -> RunService:
            if not services:
                opened_service = open_service(chosen, audit(), store)
                services.append(await stack.enter_async_context(opened_service))
            return services[0]

        async def workspaces() -> Workspaces:
            if services and services[0].workspaces is not None:
                return services[0].workspaces
            if not opened:
                opened.append(await stack.enter_async_context(open_workspaces(chosen)))
            return opened[0]

        def approvals() -> Approvals:
            if services and services[0].approvals is not None:
                return services[0].approvals
            if not questions:
                questions.append(make_approvals(chosen, store, audit()))
            return questions[0]

        @cache
        def own_leaks() -> LeakGuard:
            return make_redactor(chosen).secrets

        yield Application(
            Resources(
                store=store,
                audit=audit,
                clock=SystemClock(),
                folders=folders(chosen),
                budget=total_budget(chosen),
                service=service,
                driving=lambda: services[0] if services else None,
                workspaces=workspaces,
                approvals=approvals,
                leaks=lambda: services[0].leaks if services else own_leaks(),
                version=__version__,
                models_of=_models_of,
                program_of=_program_of,
                confinement=partial(confinement_here, chosen),
                version_of=version_of,
                login_of=partial(_login_of, chosen),
                agent_config=lambda: chosen.agent_config,
                is_set=_is_set,
                settings=partial(shown_settings, chosen),
                store_error=partial(why_no_store, chosen),
            )
        )


def _lazy_audit(chosen: Settings, stack: AsyncExitStack) -> Callable[[], AuditLog]:
    """Return a function that opens the audit log at its first call; `stack` closes it."""
    opened: list[AuditLog] = []

    def audit() -> AuditLog:
        if not opened:
            opened.append(make_audit(chosen))
            stack.push_async_callback(opened[0].close)
        return opened[0]

    return audit


def folders(chosen: Settings) -> Folders:
    from infloop.application.resources import Folders

    return Folders(
        workflows=lambda: workflow_catalog(chosen),
        providers=lambda: provider_folders(chosen),
        triggers=lambda: trigger_lookup(chosen),
        audit=lambda: audit_dir(chosen),
        connections=chosen.connections,
        data=chosen.data_dir,
        dev=chosen.dev_loops,
        home=home_directory(),
        workdir=Path.cwd(),
    )


def driving_resources(
    chosen: Settings,
    service: RunService,
    store: Store,
    audit: AuditLog,
    clock: Clock,
    dispatcher: Dispatcher,
) -> Resources:
    """Return what the use cases work with in a process that drives runs from the queue."""
    from infloop import __version__
    from infloop.application.resources import Resources

    async def driving_service() -> RunService:
        return service

    async def confinement() -> Confinement:
        return service.confinement

    async def workspaces() -> Workspaces:
        assert service.workspaces is not None
        return service.workspaces

    def approvals() -> Approvals:
        assert service.approvals is not None
        return service.approvals

    return Resources(
        store=store,
        audit=lambda: audit,
        clock=clock,
        folders=folders(chosen),
        budget=total_budget(chosen),
        service=driving_service,
        driving=lambda: service,
        workspaces=workspaces,
        approvals=approvals,
        leaks=lambda: service.leaks,
        dispatcher=dispatcher,
        version=__version__,
        models_of=_models_of,
        program_of=_program_of,
        confinement=confinement,
        version_of=version_of,
        login_of=partial(_login_of, chosen),
        agent_config=lambda: chosen.agent_config,
        is_set=_is_set,
        settings=partial(shown_settings, chosen),
        store_error=partial(why_no_store, chosen),
    )


def _program_of(manifest: AcpProvider | CliProvider) -> str:
    import shutil

    from infloop.providers.programs import program_variable

    named = os.environ.get(program_variable(manifest.id)) or manifest.bin
    return shutil.which(named) or ""


def _is_set(name: str) -> bool:
    return bool(os.environ.get(name))


def _login_of(chosen: Settings, manifest: Provider) -> LoginStatus:
    from infloop.application.provider_logins import login_status

    home = home_of(service_user(chosen.service_user))
    return login_status(manifest, os.environ, home, chosen.agent_config)


async def _models_of(manifest: HttpProvider) -> ModelList:
    from infloop.providers.http.models import list_profiles

    return await list_profiles(manifest, os.environ)
