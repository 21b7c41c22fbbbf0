"""Opens what `infloop serve`, `infloop worker` and `infloop mcp` need."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infloop.app.definitions import definition_loader
from infloop.app.process import by_commas
from infloop.app.runs import capacity_of, open_service
from infloop.app.storage import SESSIONS_DIR, open_audit, open_store, token_file
from infloop.app.use_cases import driving_resources
from infloop.settings import AUTO_TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from starlette.types import ASGIApp, Scope

    from infloop.application.application import Application
    from infloop.application.caller import Caller
    from infloop.daemon.service import Daemon
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.model.clock import Clock
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.settings import Settings
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.store import Store
    from infloop.triggers.scheduler import Scheduler
    from infloop.triggers.services import Source
    from infloop.web.dependencies import WebDependencies
    from infloop.web.exposure import Exposure


class Server(msgspec.Struct, frozen=True):
    """The HTTP server and the daemon, ready to start.

    `prepare` builds the part of the HTTP API that the first requests can wait for.
    """

    answers: ASGIApp
    web: WebDependencies
    daemon: Daemon
    application: Application
    service: RunService
    dispatcher: Dispatcher
    scheduler: Scheduler
    sources: Sequence[Source]
    metrics: ASGIApp
    prepare: Callable[[], object]


@asynccontextmanager
async def open_server(chosen: Settings, clock: Clock | None = None) -> AsyncIterator[Server]:
    """Open everything that `infloop serve` needs; raise SettingsError if it would be too open.

    `clock` is used for sessions, limits and schedules; the machine's own unless it is given.
    """
    from infloop.application.application import Application
    from infloop.application.sessions import Sessions
    from infloop.application.trigger_firing import TriggerFiring
    from infloop.daemon.own_writes import OwnWritesTracker
    from infloop.daemon.recovery import Recovery
    from infloop.daemon.service import Daemon, TriggerLoops
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.http import McpAddress
    from infloop.runtime.clock import SystemClock
    from infloop.sandbox.kernel.socket_owner import SocketOwners
    from infloop.triggers.scheduler import Scheduler
    from infloop.web.app import create_app, create_metrics_app, lazy_api
    from infloop.web.connections import Connections
    from infloop.web.dependencies import WebDependencies
    from infloop.web.metrics import Metrics
    from infloop.web.streams import Frames, Streams

    chosen = with_token(chosen)
    exposure = server_exposure(chosen)
    clock = clock or SystemClock()
    async with (
        open_audit(chosen) as audit,
        open_store(chosen) as store,
        open_service(chosen, audit, store, "serve") as service,
        AsyncExitStack() as stack,
    ):
        owners = stack.enter_context(closing(SocketOwners()))
        dispatcher = _dispatcher(chosen, service, store, audit, clock)
        resources = driving_resources(chosen, service, store, audit, clock, dispatcher)
        workdir = str(Path.cwd())
        firing = TriggerFiring(
            resources.folders.triggers,
            dispatcher,
            store.refusals,
            store.rates,
            audit,
            clock,
            workdir=workdir,
            requests_per_minute=chosen.webhook_rate_limit,
        )
        own_writes = OwnWritesTracker(workdir, clock)
        service.event_bus.subscribe(own_writes.note)
        sources = firing.sources(own_writes.writes.owns)
        scheduler = next(source for source in sources if isinstance(source, Scheduler))
        application = Application(resources.serving(firing, scheduler))
        metrics = Metrics()
        service.event_bus.subscribe(metrics.watch)
        web = WebDependencies(
            application=application,
            clock=clock,
            exposure=exposure,
            own_user=os.geteuid(),
            connections=Connections(owners.find, refused=partial(metrics.limited, "connection")),
            sessions=Sessions(exposure.token, chosen.data_dir / SESSIONS_DIR, clock),
            logins=application.logins(exposure.token, chosen.login_rate_limit),
            streams=Streams(),
            frames=Frames(application.history.scope),
            metrics=metrics,
        )
        mcp = McpAddress(McpDependencies(application), _mcp_caller)
        api = lazy_api(web, mcp)
        yield Server(
            answers=create_app(web, api),
            web=web,
            daemon=Daemon(
                service, dispatcher, TriggerLoops(firing, sources), Recovery(service, dispatcher)
            ),
            application=application,
            service=service,
            dispatcher=dispatcher,
            scheduler=scheduler,
            sources=sources,
            metrics=create_metrics_app(web),
            prepare=api.prepare,
        )


def _dispatcher(
    chosen: Settings,
    service: RunService,
    store: Store,
    audit: AuditLog,
    clock: Clock,
    *,
    own_only: bool = False,
) -> Dispatcher:
    from infloop.runtime.runs.dispatch import Dispatcher

    return Dispatcher(
        service,
        store.queue,
        clock,
        audit,
        definition_loader(chosen),
        capacity_of(chosen),
        own_only=own_only,
        workdir=str(Path.cwd()),
    )


def _mcp_caller(scope: Scope) -> Caller:
    """Return who sent a request to the MCP address, as the server's guards found."""
    from infloop.application.caller import Caller
    from infloop.model.audit import Actor

    state = scope["state"]
    return Caller(Actor(state["actor"], "mcp"), "mcp", state["correlation_id"], "http")


class McpProcess(msgspec.Struct, frozen=True):
    """What `infloop mcp` is made of: the tools, and the daemon that starts their runs."""

    tools: McpDependencies
    daemon: Daemon


@asynccontextmanager
async def open_mcp(chosen: Settings) -> AsyncIterator[McpProcess]:
    """Open everything that `infloop mcp` needs: it drives the runs that its client starts."""
    from infloop.application.application import Application
    from infloop.daemon.service import Daemon
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.runtime.clock import SystemClock

    clock = SystemClock()
    async with (
        open_audit(chosen) as audit,
        open_store(chosen) as store,
        open_service(chosen, audit, store, "mcp") as service,
    ):
        dispatcher = _dispatcher(chosen, service, store, audit, clock, own_only=True)
        resources = driving_resources(chosen, service, store, audit, clock, dispatcher)
        tools = McpDependencies(Application(resources))
        yield McpProcess(tools, Daemon(service, dispatcher))


class Worker(msgspec.Struct, frozen=True):
    """What `infloop worker` is made of: the daemon, and the use cases that it recovers with."""

    application: Application
    daemon: Daemon
    service: RunService


@asynccontextmanager
async def open_worker(chosen: Settings) -> AsyncIterator[Worker]:
    """Open everything that `infloop worker` needs: it drives queued runs, and listens nowhere."""
    from infloop.application.application import Application
    from infloop.daemon.recovery import Recovery
    from infloop.daemon.service import Daemon
    from infloop.runtime.clock import SystemClock

    clock = SystemClock()
    async with (
        open_audit(chosen) as audit,
        open_store(chosen) as store,
        open_service(chosen, audit, store, "worker") as service,
    ):
        dispatcher = _dispatcher(chosen, service, store, audit, clock)
        application = Application(
            driving_resources(chosen, service, store, audit, clock, dispatcher)
        )
        daemon = Daemon(service, dispatcher, recovery=Recovery(service, dispatcher))
        yield Worker(application, daemon, service)


def with_token(chosen: Settings) -> Settings:
    """Return the settings with the server's own token where they say `auto`."""
    from infloop.store.data_directory import refuse_shared
    from infloop.store.secret_file import keep_secret

    if chosen.api_token != AUTO_TOKEN:
        return chosen
    refuse_shared(chosen.data_dir)
    return chosen.model_copy(update={"api_token": keep_secret(token_file(chosen))})


def server_exposure(chosen: Settings) -> Exposure:
    """Return how the server may be reached; raise SettingsError if that would be too open."""
    from infloop.web.exposure import decide_exposure

    chosen = with_token(chosen)
    return decide_exposure(
        chosen.host,
        chosen.api_token,
        by_commas(chosen.allowed_hosts),
        allow_insecure=chosen.allow_insecure,
    )
