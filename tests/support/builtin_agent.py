"""The built-in agent in a whole application, with a model on loopback that says what it is told."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from infloop.app.runs import open_service
from infloop.model.agent_config import AgentConfig
from infloop.model.audit import AuditFilter
from infloop.policy.leaks.guard import LeakGuard
from infloop.policy.tool_policy import ToolPolicy
from infloop.providers.builtin.agent import BuiltinAgent
from infloop.providers.context import AgentServices
from infloop.settings import Settings
from infloop.store.audit.reading import newest
from infloop.tools.gate import Gate
from infloop.tools.toolset import Toolset
from support.runs import Finished, World
from support.tools import AuditList
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from infloop.providers.base import Usage
    from infloop.providers.prices import PriceList
    from infloop.providers.request_bound import RequestBound
    from infloop.tools.base import ToolFamily
    from support.fake_model import FakeModel

PATHS = {"openai-compatible": "/v1", "openai": "/v1", "anthropic": "", "gemini": ""}


def tables(model: FakeModel, api: str = "openai-compatible", **more: Any) -> AgentConfig:
    """Return the tables of settings that name the fake model, and `more` tables."""
    provider = {"kind": api, "base_url": f"{model.url}{PATHS[api]}", "default_model": "fake-1"}
    provider |= more.pop("provider", {})
    return msgspec.convert({"providers": {"fake": provider}, **more}, AgentConfig)


class AgentWorld(World):
    """A service whose runs have one step: the built-in agent."""

    async def ask(
        self, prompt: str = "go", *, top: dict[str, Any] | None = None, **config: Any
    ) -> Finished:
        """Run the agent once; `top` is for the whole workflow, and `config` for the node."""
        step = node("a", "agent", providerId="builtin", prompt=prompt, **config)
        flow = workflow([node("start", "start"), step], edges("start next a"))
        return await self.run({**flow, **(top or {})})

    def audited(self, event: str) -> list[dict[str, Any]]:
        """Return the entries of the audit log about tools, with one event."""
        found = newest(self.settings.data_dir / "audit", AuditFilter(event=event), 1_000)
        return [{**each.details, "outcome": each.outcome} for each in reversed(found.entries)]

    def sessions(self) -> list[Path]:
        return sorted((self.settings.data_dir / "agent-sessions").iterdir())


def outputs(finished: Finished) -> dict[str, Any]:
    """Return the outputs of the agent's step."""
    found: dict[str, Any] = finished.scope["a"]
    return found


@asynccontextmanager
async def agent_world(
    tmp_path: Path, config: AgentConfig, **settings: Any
) -> AsyncIterator[AgentWorld]:
    chosen = Settings(data_dir=tmp_path / "data", **{"isolation": "host", **settings})
    folder = tmp_path / "work"
    folder.mkdir(parents=True, exist_ok=True)
    async with open_service(chosen.with_agent_config(config)) as service:
        yield AgentWorld(service, chosen, folder)


class _Unreserved:
    """A request that nobody counts."""

    def settle(self, usage: Usage, *, complete: bool) -> None:
        pass


def bare_agent(api: str, url: str, model: str, folder: Path) -> BuiltinAgent:
    """Return the agent alone: no tools, no ledger, sessions in `folder`."""
    leaks = LeakGuard()

    async def open_tools(
        directory: str, tools: frozenset[str] | None, own: Sequence[ToolFamily]
    ) -> Toolset:
        return Toolset(Gate((), [ToolPolicy()], record=AuditList(), leaks=leaks), [])

    async def reserve(bound: RequestBound, prices: PriceList) -> _Unreserved:
        return _Unreserved()

    provider = {"kind": api, "base_url": url, "default_model": model}
    config = msgspec.convert({"providers": {"fake": provider}}, AgentConfig)
    services = AgentServices(config, folder / "sessions", leaks, open_tools, reserve)
    return BuiltinAgent("builtin", services, {}, max_call_ms=60_000)
