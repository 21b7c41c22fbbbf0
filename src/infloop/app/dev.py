"""Opens a development loop: its children, listeners and engine."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TYPE_CHECKING, NamedTuple

from infloop.app.process import child_source_environment, service_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.types import ASGIApp

    from infloop.lowlevel.own_ports import OwnPorts
    from infloop.model.dev.config import DevConfig
    from infloop.model.dev.reading import DevFile
    from infloop.sandbox.keepers.child_records import ChildRecords
    from infloop.settings import Settings
    from infloop.supervisor.engine import Engine
    from infloop.supervisor.events import EventGate
    from infloop.supervisor.probes import IsUp
    from infloop.supervisor.reports import Surface
    from infloop.web.http_server import BoundSocket
    from infloop.web.streams import Streams


def load_dev_file(named: str | None, directory: str) -> DevFile:
    """Read and check the configuration of a development loop; raise ConfigError."""
    from infloop.catalog import dev_files

    return dev_files.load_dev_file(named, directory)


@asynccontextmanager
async def open_dev(chosen: Settings, file: DevFile, shown: Surface) -> AsyncIterator[Engine]:
    """Open everything that a development loop needs, and close it again."""
    from infloop.app.dev_runs import DevRuns
    from infloop.egress.health_checks import accepts
    from infloop.lowlevel.own_ports import OwnPorts
    from infloop.model.dev.status import DevStatus
    from infloop.runtime.clock import SystemClock
    from infloop.sandbox.kernel.hardening import hide_from_children
    from infloop.sandbox.levels.host import HostSandbox
    from infloop.supervisor.children import Children
    from infloop.supervisor.engine import Engine
    from infloop.supervisor.events import EventGate
    from infloop.supervisor.hooks import Hooks
    from infloop.supervisor.mailbox import Mailbox, Recorded
    from infloop.supervisor.probes import Prober
    from infloop.supervisor.processes import Processes
    from infloop.supervisor.queue import WorkflowQueue
    from infloop.supervisor.session import Session
    from infloop.supervisor.workflows import Workflows

    hide_from_children()
    config, clock, surface = file.config, SystemClock(), Recorded(shown)
    instance = f"i-{secrets.token_hex(8)}"
    async with AsyncExitStack() as stack:
        records = await stack.enter_async_context(_child_records(chosen, instance, surface))
        session = Session(config.state_path)
        user = service_user(chosen.service_user)
        sandbox = HostSandbox(user=user)
        stack.push_async_callback(sandbox.close)
        queue = WorkflowQueue()
        gate = EventGate(
            config.event,
            session,
            queue.has_room,
            queue.put_event,
            clock,
            config.event_server.rate_limit,
        )
        listeners = await stack.enter_async_context(
            _listeners(chosen, config, gate, surface, OwnPorts())
        )
        children = Children(
            config.root,
            config.state_path,
            _inherited(chosen, config, user, surface),
            lambda names: gate.variables(listeners.events_url, names) if config.event else {},
            lambda name: records.wrap(sandbox, "dev", name),
        )
        children.reload_url = listeners.reload_url
        prober = Prober(session, await stack.enter_async_context(_http_checks(config)), accepts)
        processes = Processes(config.process, children, session, prober, surface)
        hooks = Hooks(config.hook, children, session, surface)
        runs = DevRuns(chosen, config.root, surface)
        workflows = Workflows(
            config, session, processes, hooks, surface, listeners.notify_reload, runs
        )
        engine = Engine(config, session, processes, hooks, workflows, queue, surface, clock)

        def status() -> DevStatus:
            return DevStatus(
                config=file.path,
                root=config.root,
                pid=os.getpid(),
                state_file=config.state_path,
                workflow=engine.running,
                run_id=runs.run_id,
                events=tuple(sorted(config.event)),
                processes=processes.status(),
            )

        folder = chosen.dev_loops / instance
        surface.mailbox = Mailbox(folder, status, session.encoded, engine.request_restart)
        session.on_change = surface.mailbox.changed
        stack.callback(surface.mailbox.close)
        yield engine


@asynccontextmanager
async def _child_records(
    chosen: Settings, instance: str, surface: Surface
) -> AsyncIterator[ChildRecords]:
    """Open the records of children; end first what a loop that crashed left running."""
    from infloop.lowlevel.lock_file import LockFile, is_held, remove_if_free
    from infloop.sandbox.keepers.child_records import ChildRecords, sweep
    from infloop.store.data_directory import refuse_shared
    from infloop.store.files import private_directory

    folder = chosen.dev_loops
    private_directory(folder)
    refuse_shared(chosen.data_dir)
    lock = LockFile(folder / f"{instance}.lock")
    records = ChildRecords(folder / "pids", instance)

    async def is_dead(owner: str) -> bool:
        return not is_held(folder / f"{owner}.lock")

    try:
        for left in await sweep(records.directory, is_dead):
            surface.log(
                "WARN", f"ended {left.processes} processes of {left.step} that a crash left running"
            )
        for other in folder.glob("i-*.lock"):
            if other.name != f"{instance}.lock" and remove_if_free(other):
                shutil.rmtree(folder / other.stem, ignore_errors=True)
        yield records
    finally:
        records.close()
        lock.release()


def _inherited(
    chosen: Settings, config: DevConfig, user: tuple[int, int] | None, surface: Surface
) -> Mapping[str, str]:
    """Return what every child inherits: an allowlist, or everything if the file asks for it."""
    from infloop.policy.environment import ChildEnvironment, parse_passthrough

    source = child_source_environment(user)
    if config.inherit_env:
        surface.log("WARN", "inherit_env = true: children get the whole environment")
        return {k: v for k, v in source.items() if not k.upper().startswith("INFLOOP_")}
    return ChildEnvironment(source, parse_passthrough(chosen.child_env_passthrough))()


@asynccontextmanager
async def _http_checks(config: DevConfig) -> AsyncIterator[IsUp]:
    """Open a client that reaches the URLs of the configuration's probes and nothing else."""
    from infloop.egress.client import Client
    from infloop.egress.health_checks import answers, destinations
    from infloop.model.dev.config import HttpProbe

    probes = [
        probe
        for process in config.process.values()
        for probe in (process.readiness, process.liveness)
        if isinstance(probe, HttpProbe)
    ]
    # A client loads the machine's certificates, so none is opened without need.
    async with AsyncExitStack() as stack:
        client = None
        if probes:
            allowed = destinations(probe.url for probe in probes)
            client = await stack.enter_async_context(Client(allowed))

        async def is_up(url: str, timeout_s: float, /) -> bool:
            return client is not None and await answers(client, url, timeout_s)

        yield is_up


class Listeners(NamedTuple):
    """Where the loop listens, empty if it does not, and how to ask browsers for a reload."""

    events_url: str = ""
    reload_url: str = ""
    notify_reload: Callable[[], None] = lambda: None


@asynccontextmanager
async def _listeners(
    chosen: Settings,
    config: DevConfig,
    gate: EventGate,
    surface: Surface,
    ports: OwnPorts,
) -> AsyncIterator[Listeners]:
    """Serve events if any is declared, and reloads if a workflow asks for one."""
    from infloop.model.dev.config import NotifyReload
    from infloop.model.dev.validation import parse_address

    wants_reload = any(
        isinstance(step, NotifyReload) for each in config.workflow.values() for step in each.steps
    )
    wanted = [
        *([("event_server", config.event_server.bind)] if config.event else []),
        *([("browser_reload_server", config.browser_reload_server.bind)] if wants_reload else []),
    ]
    listeners = Listeners()
    if not wanted:
        yield listeners  # without importing a web server, which is large
        return

    from infloop.web.dev_events import (
        BROWSER_EVENTS,
        EventsApp,
        ReloadApp,
        Reloads,
        dev_exposure,
    )
    from infloop.web.http_server import address, bind_address
    from infloop.web.streams import Streams

    streams, reloads = Streams(), Reloads()
    served: list[tuple[ASGIApp, BoundSocket]] = []
    async with AsyncExitStack() as stack:
        stack.enter_context(ports)
        for table, bind in wanted:
            place = parse_address(bind)
            assert place is not None  # it was validated
            exposure = dev_exposure(table, place.host, allow_insecure=chosen.allow_insecure)
            for warning in exposure.warnings:
                surface.log("WARN", warning)
            listening = stack.enter_context(bind_address(place.host, place.port, ports.announce))
            url = address(listening, place.host)
            if table == "event_server":
                listeners = listeners._replace(events_url=url)
                served.append((EventsApp(gate, exposure), listening))
                names = ", ".join(sorted(config.event))
                surface.log(
                    "INFO",
                    f"listening for external events at {url}: children can send {names}",
                )
            else:
                listeners = listeners._replace(
                    reload_url=f"{url}{BROWSER_EVENTS}", notify_reload=reloads.notify
                )
                served.append((ReloadApp(reloads, streams, exposure), listening))
                surface.log(
                    "INFO", f"listening for browser reload events at {listeners.reload_url}"
                )
        await stack.enter_async_context(_serving(served, streams))
        yield listeners


@asynccontextmanager
async def _serving(
    served: list[tuple[ASGIApp, BoundSocket]], streams: Streams
) -> AsyncIterator[None]:
    from infloop.sandbox.kernel.socket_owner import SocketOwners
    from infloop.web.connections import Connections
    from infloop.web.http_server import serve

    stopping = asyncio.Event()
    with closing(SocketOwners()) as owners:
        connections = Connections(owners.find, refused=lambda: None)
        async with asyncio.TaskGroup() as group:
            ready = [asyncio.Event() for _ in served]
            for (app, listening), one_ready in zip(served, ready, strict=True):
                group.create_task(
                    serve(app, connections, streams, listening, stopping, one_ready.set)
                )
            try:
                for one_ready in ready:
                    await one_ready.wait()
                yield
            finally:
                stopping.set()
