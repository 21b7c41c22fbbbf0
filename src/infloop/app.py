"""Builds the parts and hands each what it needs: the one place where everything meets."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from infloop.errors import SettingsError, StepError
from infloop.model.events import Limits
from infloop.policy.environment import ChildEnvironment, child_environment, parse_passthrough
from infloop.policy.spending import Budget
from infloop.settings import SECRETS, Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Mapping,
        Sequence,
    )

    from starlette.types import ASGIApp, Scope

    from infloop.catalog import ProviderFiles, WorkflowCatalog
    from infloop.catalog.lookup import CatalogLookup
    from infloop.catalog.triggers import TriggerFiles
    from infloop.engine.graph import Definition
    from infloop.mcp_server.dependencies import McpParts
    from infloop.mcp_server.tools import Caller
    from infloop.model.approval import Approval
    from infloop.model.provider import ProgramProvider
    from infloop.model.provider import Provider as Manifest
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.nodes.base import Interpreters
    from infloop.providers.approval_requests import Ask
    from infloop.providers.base import Provider
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.clock import Clock
    from infloop.runtime.confinement.fence import Around, Credential, Needs
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.base import Sandbox
    from infloop.store.audit.log import AuditLog
    from infloop.store.base import Journal
    from infloop.store.instances import Instances
    from infloop.web.dependencies import WebParts
    from infloop.web.exposure import Posture

Result = TypeVar("Result")


def settings() -> Settings:
    """Return the operator's settings."""
    return load_settings()


def run_async(main: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine on the fast event loop."""
    import uvloop

    # What a run keeps is plain data without cycles: looking through it for garbage is in vain.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def workflow_catalog(chosen: Settings) -> WorkflowCatalog:
    """Return the folders in which workflows are found."""
    from infloop.catalog import LIBRARY_DIR, WorkflowCatalog

    return WorkflowCatalog(chosen.workflows, chosen.library_dir or LIBRARY_DIR)


def trigger_lookup(chosen: Settings) -> CatalogLookup:
    """Return where triggers, webhook plugins and workflows are looked up."""
    from infloop.catalog.lookup import CatalogLookup
    from infloop.catalog.plugins import PluginFiles
    from infloop.catalog.triggers import TriggerFiles

    return CatalogLookup(
        TriggerFiles(chosen.triggers),
        PluginFiles(chosen.webhook_plugins),
        workflow_catalog(chosen),
    )


@dataclass(frozen=True, slots=True)
class History:
    """What has been recorded, for commands that only read or ask."""

    journal: Journal
    instances: Instances


def started_in() -> str:
    """Return the directory that we were started in, by the name that its user's shell has for it.

    The kernel knows it by its own name alone, whatever link led there.
    """
    named = os.environ.get("PWD", "")
    with suppress(OSError, ValueError):
        if Path(named).is_absolute() and Path(named).samefile("."):
            return named
    return str(Path.cwd())


@asynccontextmanager
async def open_history(chosen: Settings) -> AsyncIterator[History]:
    """Open the journal without owning any run."""
    from infloop.runtime.clock import SystemClock
    from infloop.store.instances import Instances
    from infloop.store.sqlite.journal import open_journal

    journal = await open_journal(chosen.data_dir)
    try:
        yield History(journal, Instances(journal, chosen.data_dir, SystemClock().now_ms))
    finally:
        await journal.close()


@asynccontextmanager
async def open_service(
    chosen: Settings, audit: AuditLog | None = None
) -> AsyncIterator[RunService]:
    """Open everything that is needed to drive runs, and take it all down again.

    `audit` is the log that this process has open, if it has.
    """
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.confinement.disk_reserve import Reserve
    from infloop.runtime.confinement.fence import EgressRules
    from infloop.runtime.confinement.homes import Homes
    from infloop.runtime.confinement.programs import confined_in
    from infloop.runtime.runs.dependencies import Parts
    from infloop.runtime.runs.markers import RunMarkers
    from infloop.runtime.runs.redaction import LeakGuard
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.keepers.child_records import ChildRecords
    from infloop.sandbox.kernel.hardening import hide_from_children
    from infloop.sandbox.kernel.resource_limits import memory_here
    from infloop.sandbox.levels.host import HostSandbox

    hide_from_children()
    clock = SystemClock()
    passthrough = parse_passthrough(chosen.child_env_passthrough)
    user = _service_user(chosen.service_user)
    environment = ChildEnvironment(_environ(user), passthrough)
    async with (
        nullcontext(audit) if audit else open_audit(chosen) as log,
        open_history(chosen) as history,
        open_sandbox(chosen) as opened,
    ):
        own = HostSandbox()  # for git, which we run ourselves
        reserve = Reserve(str(chosen.data_dir), chosen.min_free_disk_bytes)
        workspaces = Workspaces(
            chosen.data_dir,
            own,
            Path.home(),
            snapshots=chosen.snapshots,
            confine=confined_in(_there(opened)) if opened.sandbox.level != "host" else None,
            user=user,
            shortage=reserve.shortage,
        )
        instance = await history.instances.register()
        records = ChildRecords(chosen.data_dir / "pids", instance.id)
        markers = RunMarkers(chosen.data_dir / "active-runs", instance.row)
        try:
            parts = Parts(
                sandbox=opened.sandbox,
                why_host=opened.why_host,
                homes=Homes((Path(opened.scratch) if user else chosen.data_dir) / "homes", user),
                environment=environment,
                provider=_provider_finder(chosen, passthrough),
                egress=EgressRules(
                    chosen.egress_enforce,
                    _by_commas(chosen.egress_allowlist),
                    _by_commas(chosen.egress_denylist),
                ),
                service_user=user,
                interpreters=find_interpreters(chosen),
                limits=Limits(
                    chosen.max_run_node_executions,
                    chosen.max_run_duration_ms,
                    chosen.max_run_cost_usd,
                ),
                budget=Budget(
                    chosen.max_total_cost_usd, chosen.cost_window, chosen.require_known_cost
                ),
                history_limit=chosen.run_history_limit,
                max_output_bytes=chosen.max_output_bytes,
                max_command_ms=chosen.max_command_ms,
                child_memory_bytes=chosen.max_child_memory_bytes or memory_here() * 3 // 4,
                reserve=reserve,
                own_device=chosen.data_dir.stat().st_dev,
                leaks=LeakGuard(_secrets(chosen)),
                workspaces=workspaces,
                records=records,
                markers=markers,
                audit=log,
                approvals=_approvals(chosen, history, log),
            )
            async with RunService(
                history.journal, history.instances, instance, clock, parts
            ) as service:
                yield service
        finally:
            workspaces.close()
            await own.close()
            records.close()
            markers.close()
            await instance.close()


def _secrets(chosen: Settings) -> Callable[[], list[str]]:
    """Return the way to all secrets that this process knows, whenever it is asked."""
    from infloop.catalog.secrets import FileSecrets
    from infloop.policy.secret_variables import secret_values

    @cache
    def trigger_files() -> TriggerFiles:
        # Only when there are any: what reads them takes ten milliseconds to import.
        from infloop.catalog.triggers import TriggerFiles

        return TriggerFiles(chosen.triggers)

    def triggers() -> list[Trigger]:
        return trigger_files().all() if chosen.triggers.is_dir() else []

    own = [*secret_values(os.environ), *(getattr(chosen, name) for name in SECRETS)]
    folders = provider_folders(chosen)[:-1]  # what comes with infloop holds no secret
    filed = FileSecrets(triggers, folders, os.environ)
    return lambda: [*own, *filed.values()]


def _by_commas(text: str) -> tuple[str, ...]:
    return tuple(entry for part in text.split(",") if (entry := part.strip()))


@dataclass(frozen=True, slots=True)
class OpenedSandbox:
    """Where children live; `why_host` says why they are not confined, unless that was asked for.

    `scratch` is a directory that they can enter, as long as this is open.
    """

    sandbox: Sandbox
    scratch: str
    why_host: str = ""


@asynccontextmanager
async def open_sandbox(chosen: Settings) -> AsyncIterator[OpenedSandbox]:
    """Open the place where children live, at the level that the operator chose and that holds."""
    from infloop.sandbox.levels.choice import Place, choose, open_level
    from infloop.sandbox.view.scratch import scratch_directory

    with scratch_directory() as scratch:
        place = Place(scratch, (str(chosen.data_dir),), _service_user(chosen.service_user))
        chosen.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        choice = await choose(chosen.isolation, place, chosen.data_dir / "levels.json")
        sandbox = open_level(choice.level, place)
        try:
            yield OpenedSandbox(sandbox, scratch, choice.why_host)
        finally:
            await sandbox.close()


def _service_user(name: str) -> tuple[int, int] | None:
    import pwd

    if not name:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise SettingsError(
            f"INFLOOP_SERVICE_USER is {name!r}, and there is no such user; create it "
            f"(`useradd --system {name}`) or name another"
        ) from None
    return user.pw_uid, user.pw_gid


def _environ(user: tuple[int, int] | None) -> Mapping[str, str]:
    """Return what children may inherit from: our environment, with the home that is theirs."""
    return {**os.environ, "HOME": str(_home(user))} if user else os.environ


def _home(user: tuple[int, int] | None) -> Path:
    """Return the home of whoever children run as; ours if they have none."""
    import pwd

    theirs = Path(pwd.getpwuid(user[0]).pw_dir) if user else None
    return theirs if theirs is not None and theirs.is_dir() else Path.home()


def audit_dir(chosen: Settings) -> Path:
    """Return where the audit log is."""
    from infloop.store.audit.log import DIRECTORY

    return chosen.data_dir / DIRECTORY


@asynccontextmanager
async def open_audit(chosen: Settings) -> AsyncIterator[AuditLog]:
    """Open the audit log for writing; it is made with its first entry."""
    from infloop.runtime.clock import SystemClock
    from infloop.store.audit.log import AuditLog

    async with AuditLog(
        audit_dir(chosen),
        SystemClock().now_ms,
        max_bytes=chosen.audit_max_bytes,
        max_files=chosen.audit_max_files,
    ) as log:
        yield log


@asynccontextmanager
async def open_approvals(chosen: Settings) -> AsyncIterator[Approvals]:
    """Open what waits for a person, for commands that list and answer it."""
    async with open_audit(chosen) as audit, open_history(chosen) as history:
        yield _approvals(chosen, history, audit)


def _approvals(chosen: Settings, history: History, audit: AuditLog) -> Approvals:
    from infloop.runtime.approvals import Approvals
    from infloop.runtime.clock import SystemClock
    from infloop.store.sqlite.journal import SqliteJournal

    assert isinstance(history.journal, SqliteJournal)

    def missed() -> list[Approval]:
        from infloop.catalog.triggers import TriggerFiles
        from infloop.triggers.questions import missed_schedules
        from infloop.triggers.scheduler import STATE_FILE, ScheduleStates

        marks = ScheduleStates(chosen.triggers / STATE_FILE).load()
        return missed_schedules(TriggerFiles(chosen.triggers).all(), marks) if marks else []

    return Approvals(
        history.journal.approvals,
        history.journal,
        history.instances,
        SystemClock(),
        audit,
        timeout_ms=chosen.approval_timeout_ms,
        missed=missed,
    )


@dataclass(frozen=True, slots=True)
class Server:
    """The HTTP server, ready to listen: what answers, and what it is made of.

    What most requests need and the first ones can wait for is made after `get_ready`.
    """

    answers: ASGIApp
    parts: WebParts
    metrics: ASGIApp
    get_ready: Callable[[], object]


@asynccontextmanager
async def open_server(
    chosen: Settings,
    doctor: Callable[[], Awaitable[JsonObject]],
    clock: Clock | None = None,
) -> AsyncIterator[Server]:
    """Open everything that `infloop serve` needs; raise SettingsError if it would be too open.

    `clock` is what sessions, limits and schedules go by; the machine's own unless it is given.
    """
    from infloop import __version__
    from infloop.mcp_server.http import McpAddress
    from infloop.policy.rate import RateLimit
    from infloop.providers.http.models import offered_profiles
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.runs.dispatch import Dispatcher, Room
    from infloop.settings import shown_settings
    from infloop.store.sqlite.journal import SqliteJournal
    from infloop.web.app import create_app, create_metrics_app, later_api
    from infloop.web.credentials import Sessions
    from infloop.web.dependencies import Places, WebParts
    from infloop.web.metrics import Metrics
    from infloop.web.streams import Frames, Streams
    from infloop.web.triggering import Triggering

    posture = server_posture(chosen)
    clock = clock or SystemClock()
    async with open_audit(chosen) as audit, open_service(chosen, audit) as service:
        assert isinstance(service.journal, SqliteJournal)
        assert service.workspaces is not None
        metrics = Metrics()
        service.news.watch(metrics.watch)
        dispatcher = Dispatcher(
            service,
            service.journal.queue,
            clock,
            audit,
            _definition_loader(chosen),
            Room(chosen.max_concurrent_runs, chosen.queue_limit),
        )
        parts = WebParts(
            service=service,
            dispatcher=dispatcher,
            triggering=Triggering(
                lookup=trigger_lookup(chosen),
                service=service,
                dispatcher=dispatcher,
                audit=audit,
                clock=clock,
                workdir=str(Path.cwd()),
                requests_per_minute=chosen.webhook_rate_limit,
            ),
            workspaces=service.workspaces,
            audit=audit,
            clock=clock,
            posture=posture,
            sessions=Sessions(posture.token, chosen.data_dir / "sessions" / "ended.json", clock),
            logins=RateLimit(chosen.login_rate_limit),
            streams=Streams(),
            frames=Frames(service.journal),
            metrics=metrics,
            places=Places(
                workflows=workflow_catalog(chosen),
                providers=provider_folders(chosen),
                connections=chosen.connections,
                audit=audit_dir(chosen),
                home=Path.home(),
                workdir=Path.cwd(),
            ),
            version=__version__,
            profiles=lambda manifest: offered_profiles(manifest, os.environ),
            settings=lambda: shown_settings(chosen),
            doctor=doctor,
        )
        mcp = McpAddress(_mcp_parts(chosen, service, dispatcher, audit, clock), _mcp_caller)
        api = later_api(parts, mcp)
        yield Server(create_app(parts, api), parts, create_metrics_app(parts), api.get_ready)


def _mcp_caller(scope: Scope) -> Caller:
    """Return who sent a request to the MCP address, as the server's guards found."""
    from infloop.mcp_server.tools import Caller
    from infloop.model.audit import Actor

    state = scope["state"]
    return Caller(Actor(state["actor"], "mcp"), "http", state["correlation_id"])


def _mcp_parts(
    chosen: Settings,
    service: RunService,
    dispatcher: Dispatcher,
    audit: AuditLog,
    clock: Clock,
) -> McpParts:
    from infloop import __version__
    from infloop.mcp_server.dependencies import McpParts

    assert service.workspaces is not None
    return McpParts(
        service=service,
        dispatcher=dispatcher,
        workspaces=service.workspaces,
        audit=audit,
        clock=clock,
        workflows=workflow_catalog(chosen),
        known_providers=lambda: known_providers(chosen),
        workdir=str(Path.cwd()),
        version=__version__,
    )


@asynccontextmanager
async def open_mcp(chosen: Settings) -> AsyncIterator[McpParts]:
    """Open everything that `infloop mcp` needs: it drives the runs that its client starts."""
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.runs.dispatch import Dispatcher, Room
    from infloop.store.sqlite.journal import SqliteJournal

    clock = SystemClock()
    async with open_audit(chosen) as audit, open_service(chosen, audit) as service:
        assert isinstance(service.journal, SqliteJournal)
        dispatcher = Dispatcher(
            service,
            service.journal.queue,
            clock,
            audit,
            _definition_loader(chosen),
            Room(chosen.max_concurrent_runs, chosen.queue_limit),
            own_only=True,
        )
        yield _mcp_parts(chosen, service, dispatcher, audit, clock)


def server_posture(chosen: Settings) -> Posture:
    """Return how the server may be reached; raise SettingsError if that would be too open."""
    from infloop.web.exposure import decide_posture

    return decide_posture(
        chosen.host,
        chosen.api_token,
        _by_commas(chosen.allowed_hosts),
        allow_insecure=chosen.allow_insecure,
    )


def _definition_loader(chosen: Settings) -> Callable[[str], Awaitable[Definition]]:
    """Return the way from a workflow's id to what a run of it executes, read as it is now."""
    from infloop.catalog.files import folder_state
    from infloop.engine.graph import Definition

    catalog, folders = workflow_catalog(chosen), provider_folders(chosen)
    read_before: dict[str, tuple[object, Definition]] = {}

    def read(workflow_id: str, known: frozenset[str]) -> Definition:
        bundle = catalog.load_bundle(workflow_id, known_providers=known)
        return Definition(bundle.root.id, bundle.plain())

    async def load(workflow_id: str) -> Definition:
        # Looking whether anything has changed takes less than going to another thread.
        known = frozenset(name for folder in folders for name in folder.ids())
        looks = folder_state(catalog.user_dir), folder_state(catalog.library_dir), known
        before = read_before.get(workflow_id)
        if before is None or before[0] != looks or None in looks:
            before = looks, await asyncio.to_thread(read, workflow_id, known)
            read_before[workflow_id] = before
        return before[1]

    return load


@asynccontextmanager
async def open_workspaces(chosen: Settings) -> AsyncIterator[Workspaces]:
    """Open the worktrees and snapshots, for commands that look at them or bring work home."""
    from infloop.runtime.confinement.programs import confined_in
    from infloop.runtime.workspaces import Workspaces
    from infloop.sandbox.levels.host import HostSandbox

    own = HostSandbox()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(own.close)
        workspaces = Workspaces(
            chosen.data_dir,
            own,
            Path.home(),
            snapshots=chosen.snapshots,
            confine=confined_in(_when_needed(chosen, stack)),
            user=_service_user(chosen.service_user),
        )
        stack.callback(workspaces.close)
        yield workspaces


def _there(opened: OpenedSandbox) -> Callable[[], Awaitable[Sandbox]]:
    async def find() -> Sandbox:
        return opened.sandbox

    return find


def _when_needed(chosen: Settings, stack: AsyncExitStack) -> Callable[[], Awaitable[Sandbox]]:
    """Return a way to open a sandbox that confines, once, and for as long as the stack is open."""
    found: list[Sandbox] = []

    async def find() -> Sandbox:
        if not found:
            opened = await stack.enter_async_context(open_sandbox(chosen))
            found.append(opened.sandbox)
        if found[0].level == "host":
            raise StepError("level 'host' confines nothing; see `infloop doctor`")
        return found[0]

    return find


def provider_folders(chosen: Settings) -> tuple[ProviderFiles, ...]:
    """Return where providers are found, first the operator's own: the first with an id counts."""
    from infloop.catalog import ProviderFiles
    from infloop.catalog.connections import connected_providers
    from infloop.providers.cli.agent import SHIPPED_DIR

    return (
        ProviderFiles(chosen.providers),
        ProviderFiles(chosen.connections, connected_providers),
        ProviderFiles(SHIPPED_DIR),
    )


def known_providers(chosen: Settings) -> list[str]:
    """Return the ids that an agent node can name."""
    return list(dict.fromkeys(name for folder in provider_folders(chosen) for name in folder.ids()))


def _provider_finder(
    chosen: Settings, passthrough: tuple[str, ...]
) -> Callable[[str, Around, Ask | None], Provider]:
    """Return the way from a provider's id to the provider; a changed manifest counts at once."""
    from infloop.model.provider import AcpProvider, CliProvider, HttpProvider
    from infloop.model.provider import ScriptedProvider as ScriptedManifest
    from infloop.providers.cli.agent import CliAgent, bin_variable
    from infloop.providers.prices import Priced, PriceList
    from infloop.providers.scripted import ScriptedProvider
    from infloop.runtime.confinement.fence import NO_NEEDS

    folders = provider_folders(chosen)
    allowed = passthrough
    user = _service_user(chosen.service_user)

    def environment(passthrough: Sequence[str] = ()) -> dict[str, str]:
        return child_environment(_environ(user), (*allowed, *passthrough), {})

    def find(provider_id: str, around: Around, ask: Ask | None) -> Provider:
        match _manifest(folders, provider_id):
            case None:
                raise StepError(
                    f"unknown provider {provider_id!r}; known are: "
                    f"{', '.join(known_providers(chosen))}. Put a manifest into "
                    f"{str(chosen.providers)!r}"
                )
            case ScriptedManifest() as manifest:
                script = chosen.providers / manifest.script
                return ScriptedProvider(
                    provider_id, script, around(NO_NEEDS), environment, chosen.max_command_ms
                )
            case CliProvider() as manifest:
                program = os.environ.get(bin_variable(provider_id), "")
                sandbox = around(_needs(manifest, user))
                agent = CliAgent(manifest, sandbox, environment, program=program)
                tells_no_cost = manifest.output_format == "codex-json"
                return Priced(agent, PriceList("openai", sums=True)) if tells_no_cost else agent
            case AcpProvider() as manifest:
                # Only when it is needed: the protocol's messages take half a second to import.
                from infloop.providers.acp.agent import AcpAgent

                program = os.environ.get(bin_variable(provider_id), "")
                sandbox = around(_needs(manifest, user))
                return AcpAgent(manifest, sandbox, environment, consult=ask, program=program)
            case HttpProvider() as manifest:
                from infloop.providers.http.agent import HttpAgent

                prices = PriceList(manifest.price_list or "", manifest.base_url)
                return Priced(HttpAgent(manifest, os.environ), prices)

    return find


def _needs(manifest: ProgramProvider, user: tuple[int, int] | None) -> Needs:
    """Return what an agent that is a program needs beyond its directory.

    Who uses a key without having it needs no other login either.
    """
    from infloop.runtime.confinement.fence import Needs
    from infloop.sandbox.view.path_permissions import can_reach

    home, credential = _home(user), _credential(manifest)

    def listed(paths: Sequence[str]) -> tuple[str, ...]:
        found = [str(home / path) for path in paths if (home / path).exists()]
        return tuple(path for path in found if user is None or can_reach(path, user))

    return Needs(
        f"provider {manifest.id}",
        manifest.egress_allowlist or (),
        str(home),
        listed(manifest.home_read),
        listed(manifest.home_write) if credential is None else (),
        credential,
    )


def _credential(manifest: ProgramProvider) -> Credential | None:
    """Return the key that the agent uses without having it, if we have it."""
    from infloop.egress.broker import Account
    from infloop.runtime.confinement.fence import Credential

    broker = manifest.broker
    key = os.environ.get(broker.key_variable, "") if broker else ""
    if broker is None or not key:
        return None
    account = Account(
        manifest.id,
        os.environ.get(broker.base_url_variable or "", "") or broker.base_url,
        broker.dialect,
        "x-api-key" if broker.dialect == "anthropic" else "bearer",
        key,
        private_ok=True,
    )
    return Credential(
        account, broker.key_variable, broker.base_url_variable or "", broker.args, broker.withheld
    )


def _manifest(folders: Sequence[ProviderFiles], provider_id: str) -> Manifest | None:
    for folder in folders:
        found = folder.find(provider_id)
        if found is not None:
            return found
    return None


def find_interpreters(chosen: Settings) -> Interpreters:
    """Find what runs scripts: what the operator named, else Deno, Bun or Node where installed."""
    from infloop.nodes.base import Interpreters

    typescript = _typescript(chosen)
    return Interpreters(
        python=chosen.python_bin,
        typescript=typescript,
        typescript_missing=(
            "TypeScript needs deno, bun or node 23.6 or newer, and none was found; "
            "install one (`pip install infloop[typescript]` brings deno) or name it in "
            "INFLOOP_DENO_BIN, INFLOOP_BUN_BIN or INFLOOP_NODE_BIN"
        ),
    )


def _installed(program: str) -> str | None:
    """Return where a program is; what is in the working directory does not count."""
    from infloop.sandbox.levels.keeper_sandbox import find_program

    return find_program(program, os.environ.get("PATH", os.defpath))


def _typescript(chosen: Settings) -> tuple[str, ...]:
    deno = chosen.deno_bin or _packaged_deno() or _installed("deno")
    if deno:
        return (deno, "run", "--quiet", "--no-config", "--no-lock", "--allow-all", "--no-check")
    bun = chosen.bun_bin or _installed("bun")
    if bun:
        return (bun, "run")
    node = chosen.node_bin or _installed("node")
    if node and (chosen.node_bin or _runs_typescript(Path(node))):
        return (node, "--disable-warning=ExperimentalWarning", "--experimental-strip-types")
    return ()


def _packaged_deno() -> str:
    """Return the Deno that was installed with the `typescript` extra, or nothing."""
    try:
        import deno
    except ImportError:
        return ""
    try:
        return str(deno.find_deno_bin())
    except (FileNotFoundError, RuntimeError):
        return ""


def _runs_typescript(node: Path) -> bool:
    """Say whether this Node can run TypeScript as it is, by the headers that come with it."""
    header = node.resolve().parent.parent / "include/node/node_version.h"
    try:
        text = header.read_text(encoding="utf-8")
    except OSError:
        return False
    major = next(
        (
            line.split()[2]
            for line in text.splitlines()
            if line.startswith("#define NODE_MAJOR_VERSION")
        ),
        "0",
    )
    return major.isdecimal() and int(major) >= 23
