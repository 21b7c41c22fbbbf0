"""Builds the parts and hands each what it needs: the one place where everything meets."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from infloop.errors import StepError
from infloop.model.events import Limits
from infloop.policy.environment import ChildEnvironment, child_environment, parse_passthrough
from infloop.policy.spending import Budget
from infloop.settings import Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from infloop.catalog import ProviderFiles, WorkflowCatalog
    from infloop.nodes.base import Interpreters
    from infloop.providers.base import Provider
    from infloop.runtime.service import RunService
    from infloop.sandbox.base import Sandbox
    from infloop.store.base import Journal
    from infloop.store.instances import Instances

Result = TypeVar("Result")


def settings() -> Settings:
    """Return the operator's settings."""
    return load_settings()


def run_async(main: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine on the fast event loop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def workflow_catalog(chosen: Settings) -> WorkflowCatalog:
    """Return the folders in which workflows are found."""
    from infloop.catalog import LIBRARY_DIR, WorkflowCatalog

    return WorkflowCatalog(chosen.workflows, chosen.library_dir or LIBRARY_DIR)


@dataclass(frozen=True, slots=True)
class History:
    """What has been recorded, for commands that only read or ask."""

    journal: Journal
    instances: Instances


@asynccontextmanager
async def open_history(chosen: Settings) -> AsyncIterator[History]:
    """Open the journal without owning any run."""
    from infloop.runtime.clock import SystemClock
    from infloop.store.instances import Instances
    from infloop.store.sqlite import open_journal

    journal = await open_journal(chosen.data_dir)
    try:
        yield History(journal, Instances(journal, chosen.data_dir, SystemClock().now_ms))
    finally:
        await journal.close()


@asynccontextmanager
async def open_service(chosen: Settings) -> AsyncIterator[RunService]:
    """Open everything that is needed to drive runs, and take it all down again."""
    from infloop.runtime.clock import SystemClock
    from infloop.runtime.service import Parts, RunService
    from infloop.sandbox.hardening import hide_from_children
    from infloop.sandbox.host import HostSandbox

    hide_from_children()
    clock = SystemClock()
    passthrough = parse_passthrough(chosen.child_env_passthrough)
    environment = ChildEnvironment(os.environ, passthrough)
    async with open_history(chosen) as history:
        sandbox = HostSandbox()
        instance = await history.instances.register()
        try:
            parts = Parts(
                sandbox=sandbox,
                environment=environment,
                provider=_provider_finder(chosen, sandbox, passthrough),
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
            )
            async with RunService(
                history.journal, history.instances, instance, clock, parts
            ) as service:
                yield service
        finally:
            await sandbox.close()
            await instance.close()


def provider_folders(chosen: Settings) -> tuple[ProviderFiles, ProviderFiles]:
    """Return where manifests are found: the operator's own, then those that come with infloop."""
    from infloop.catalog import ProviderFiles
    from infloop.providers.cli import SHIPPED_DIR

    return ProviderFiles(chosen.providers), ProviderFiles(SHIPPED_DIR)


def known_providers(chosen: Settings) -> list[str]:
    """Return the ids that an agent node can name."""
    return list(dict.fromkeys(name for folder in provider_folders(chosen) for name in folder.ids()))


def _provider_finder(
    chosen: Settings, sandbox: Sandbox, passthrough: tuple[str, ...]
) -> Callable[[str], Provider]:
    """Return the way from a provider's id to the provider; a changed manifest counts at once."""
    from infloop.model.provider import CliProvider
    from infloop.model.provider import ScriptedProvider as ScriptedManifest
    from infloop.providers.cli import CliAgent, bin_variable
    from infloop.providers.scripted import ScriptedProvider

    own, shipped = provider_folders(chosen)
    allowed = passthrough

    def environment(passthrough: Sequence[str] = ()) -> dict[str, str]:
        return child_environment(os.environ, (*allowed, *passthrough), {})

    def find(provider_id: str) -> Provider:
        manifest = own.find(provider_id) or shipped.find(provider_id)
        match manifest:
            case None:
                raise StepError(
                    f"unknown provider {provider_id!r}; known are: "
                    f"{', '.join(known_providers(chosen))}. Put a manifest into "
                    f"{str(chosen.providers)!r}"
                )
            case ScriptedManifest():
                script = chosen.providers / manifest.script
                return ScriptedProvider(provider_id, script, sandbox, environment)
            case CliProvider():
                program = os.environ.get(bin_variable(provider_id), "")
                return CliAgent(manifest, sandbox, environment, program=program)
            case _:
                raise StepError(
                    f"provider {provider_id!r} has transport {manifest.transport!r}, which this "
                    "version cannot run; it runs 'cli' and 'scripted' providers"
                )

    return find


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


def _typescript(chosen: Settings) -> tuple[str, ...]:
    deno = chosen.deno_bin or _packaged_deno() or shutil.which("deno")
    if deno:
        return (deno, "run", "--quiet", "--no-config", "--no-lock", "--allow-all", "--no-check")
    bun = chosen.bun_bin or shutil.which("bun")
    if bun:
        return (bun, "run")
    node = chosen.node_bin or shutil.which("node")
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
