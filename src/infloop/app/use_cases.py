"""Opens the application layer: for the command line everything lazily, for a server all at once."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.app.catalogs import provider_folders, trigger_lookup, workflow_catalog
from infloop.app.runs import make_approvals, open_service, open_workspaces
from infloop.app.storage import audit_dir, open_audit, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.application.application import Application
    from infloop.application.resources import Folders, Resources
    from infloop.model.clock import Clock
    from infloop.model.provider import HttpProvider
    from infloop.providers.http.models import ModelList
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.settings import Settings
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.store import Store


@asynccontextmanager
async def open_application(chosen: Settings) -> AsyncIterator[Application]:
    """Open the use cases for one command. What it does not use is not opened."""
    from infloop import __version__
    from infloop.application.application import Application
    from infloop.application.resources import Resources
    from infloop.runtime.clock import SystemClock
    from infloop.settings import shown_settings

    async with AsyncExitStack() as stack:
        audit = await stack.enter_async_context(open_audit(chosen))
        store = await stack.enter_async_context(open_store(chosen))
        services: list[RunService] = []
        opened: list[Workspaces] = []
        asked: list[Approvals] = []

        async def service() -> RunService:
            if not services:
                services.append(await stack.enter_async_context(open_service(chosen, audit, store)))
            return services[0]

        async def workspaces() -> Workspaces:
            if not opened:
                opened.append(await stack.enter_async_context(open_workspaces(chosen)))
            return opened[0]

        def approvals() -> Approvals:
            if services and services[0].approvals is not None:
                return services[0].approvals
            if not asked:
                asked.append(make_approvals(chosen, store, audit))
            return asked[0]

        yield Application(
            Resources(
                store=store,
                audit=audit,
                clock=SystemClock(),
                folders=folders(chosen),
                service=service,
                driving=lambda: services[0] if services else None,
                workspaces=workspaces,
                approvals=approvals,
                version=__version__,
                models_of=_models_of,
                settings=lambda: shown_settings(chosen),
            )
        )


def folders(chosen: Settings) -> Folders:
    from infloop.application.resources import Folders

    return Folders(
        workflows=workflow_catalog(chosen),
        providers=provider_folders(chosen),
        triggers=trigger_lookup(chosen),
        connections=chosen.connections,
        audit=audit_dir(chosen),
        home=Path.home(),
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
    from infloop.settings import shown_settings

    async def driving_service() -> RunService:
        return service

    async def workspaces() -> Workspaces:
        assert service.workspaces is not None
        return service.workspaces

    def approvals() -> Approvals:
        assert service.approvals is not None
        return service.approvals

    return Resources(
        store=store,
        audit=audit,
        clock=clock,
        folders=folders(chosen),
        service=driving_service,
        driving=lambda: service,
        workspaces=workspaces,
        approvals=approvals,
        dispatcher=dispatcher,
        version=__version__,
        models_of=_models_of,
        settings=lambda: shown_settings(chosen),
    )


async def _models_of(manifest: HttpProvider) -> ModelList:
    from infloop.providers.http.models import list_profiles

    return await list_profiles(manifest, os.environ)
