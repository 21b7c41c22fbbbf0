"""Finds a provider by its id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.app.catalogs import known_providers, manifest_of, provider_folders
from infloop.app.process import child_source_environment, home_of
from infloop.errors import StepError
from infloop.policy.environment import child_environment
from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infloop.app.sandbox import OpenedSandbox
    from infloop.model.provider import ProgramProvider
    from infloop.model.provider import Provider as Manifest
    from infloop.model.values import JsonObject
    from infloop.providers.base import Provider
    from infloop.providers.context import AgentServices, ProviderEnvironment
    from infloop.runtime.confinement.fence import Credential, ExtraAccess
    from infloop.runtime.runs.dependencies import StepServices
    from infloop.tools.base import ToolFamily
    from infloop.tools.toolset import Toolset

AGENT_SESSIONS_DIR = "agent-sessions"
KNOWN_TOOLS_FILE = "known-mcp-tools.json"


def provider_finder(
    chosen: Settings, passthrough: tuple[str, ...], opened: OpenedSandbox
) -> Callable[[str, StepServices], Provider]:
    """Return the function that finds a provider by its id; a changed manifest counts at once.

    A manifest of this machine counts before the one that a run carries. Children run as the user of
    the sandbox, if it has one.
    """
    folders = provider_folders(chosen)
    allowed, user = passthrough, opened.user

    def environment(passthrough: Sequence[str]) -> dict[str, str]:
        return child_environment(child_source_environment(user), (*allowed, *passthrough), {})

    def agent(step: StepServices) -> AgentServices:
        return _agent_services(chosen, opened, environment, step)

    def find(provider_id: str, step: StepServices) -> Provider:
        from infloop.providers.context import ProviderContext
        from infloop.providers.transports import make_provider
        from infloop.runtime.confinement.fence import NO_EXTRA_ACCESS

        manifest = manifest_of(folders, provider_id) or _carried(step.manifests, provider_id)
        if manifest is None:
            raise StepError(
                f"unknown provider {provider_id!r}; known are: "
                f"{', '.join(known_providers(chosen))}. Put a manifest into "
                f"{str(chosen.providers)!r}"
            )
        context = ProviderContext(
            environment=environment,
            variables=os.environ,
            folder=chosen.providers,
            max_command_ms=chosen.max_command_ms,
            max_api_call_ms=chosen.max_api_call_ms,
            sandbox=lambda program: step.make_sandbox(
                _extra_access(program, user) if program else NO_EXTRA_ACCESS
            ),
            ask_person=step.ask_person,
            agent=agent(step),
        )
        return make_provider(manifest, context)

    return find


def _agent_services(
    chosen: Settings, opened: OpenedSandbox, environment: ProviderEnvironment, step: StepServices
) -> AgentServices:
    """Return what the built-in agent of one step is given."""
    from infloop.providers.context import AgentServices
    from infloop.runtime.confinement.fence import NO_EXTRA_ACCESS

    async def open_tools(
        directory: str, tools: frozenset[str] | None, own: Sequence[ToolFamily]
    ) -> Toolset:
        from infloop.tools.toolset import ToolContext, open_toolset

        context = ToolContext(
            directory=Path(directory),
            private=(chosen.data_dir,),
            sandbox=lambda: step.make_sandbox(NO_EXTRA_ACCESS),
            own_sandbox=opened.sandbox,
            environment=environment,
            variables=os.environ,
            config=chosen.agent_config,
            hosts=step.hosts,
            known_tools=chosen.data_dir / KNOWN_TOOLS_FILE,
            max_command_ms=chosen.max_command_ms,
            scratch=opened.scratch,
            user=opened.user,
        )
        return await open_toolset(
            context,
            own,
            tools=tools,
            record=step.record_call,
            leaks=step.leaks,
            ask=step.ask_person,
        )

    return AgentServices(
        config=chosen.agent_config,
        sessions=chosen.data_dir / AGENT_SESSIONS_DIR,
        leaks=step.leaks,
        open_tools=open_tools,
        reserve=step.reserve,
    )


def _extra_access(manifest: ProgramProvider, user: tuple[int, int] | None) -> ExtraAccess:
    """Return what an agent that is a program may reach beyond its directory.

    An agent that uses a brokered key needs no other login.
    """
    from infloop.runtime.confinement.fence import ExtraAccess
    from infloop.sandbox.view.path_permissions import can_reach

    home, credential = home_of(user), _credential(manifest)

    def listed(paths: Sequence[str]) -> tuple[str, ...]:
        found = [str(home / path) for path in paths if (home / path).exists()]
        return tuple(path for path in found if user is None or can_reach(path, user))

    return ExtraAccess(
        f"provider {manifest.id}",
        manifest.egress_allowlist or (),
        str(home),
        listed(manifest.home_read),
        listed(manifest.home_write) if credential is None else (),
        credential,
    )


def _credential(manifest: ProgramProvider) -> Credential | None:
    """Return the key that the agent uses through the broker, if it is set."""
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


def _carried(manifests: Mapping[str, JsonObject], provider_id: str) -> Manifest | None:
    """Return the manifest that a run brought with it, if it is valid here."""
    from infloop.model.provider import parse_provider
    from infloop.model.values import compact_json

    carried = manifests.get(provider_id)
    found = parse_provider(compact_json(carried).encode())[0] if carried else None
    return found if found is not None and found.id == provider_id else None
