"""Every transport, output format and dialect that a manifest can name is there."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn, get_args

import pytest

from infloop.model.agent_config import AgentConfig
from infloop.model.provider import (
    DialectName,
    OutputFormatName,
    ProgramProvider,
    Provider,
    ProviderBase,
)
from infloop.policy.leaks.guard import LeakGuard
from infloop.providers.cli.formats import OUTPUT_FORMATS
from infloop.providers.context import AgentServices, ProviderContext
from infloop.providers.http.dialects import DIALECTS, dialect_of
from infloop.providers.transports import make_provider
from infloop.sandbox.base import Sandbox
from infloop.sandbox.levels.host import HostSandbox

MANIFESTS = get_args(Provider)


def test_the_tables_hold_what_a_manifest_can_name() -> None:
    assert list(OUTPUT_FORMATS) == list(get_args(OutputFormatName))
    assert list(DIALECTS) == list(get_args(DialectName))


def test_the_broker_recognises_the_calls_of_every_dialect() -> None:
    for name, dialect in DIALECTS.items():
        assert dialect_of(f"/v1{dialect.endpoint}") == name
    assert dialect_of("/v1/models") is None


async def never(*_: object, **__: object) -> NoReturn:
    """Nothing is opened or reserved before a provider is asked."""
    raise AssertionError


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda model: model.__name__)
async def test_every_manifest_has_a_transport_with_its_own_sandbox(
    tmp_path: Path, manifest: type[ProviderBase]
) -> None:
    made_for: list[ProgramProvider | None] = []
    host = HostSandbox()

    def sandbox(program: ProgramProvider | None) -> Sandbox:
        made_for.append(program)
        return host

    context = ProviderContext(
        environment=lambda passthrough: {},
        variables={"INFLOOP_PROVIDER_BIN_SOME": "/bin/true"},
        folder=tmp_path,
        max_command_ms=1_000,
        sandbox=sandbox,
        agent=AgentServices(AgentConfig(), tmp_path, LeakGuard(), never, never),
    )
    described = manifest(id="some")
    try:
        provider = make_provider(described, context)  # type: ignore[arg-type]
    finally:
        await host.close()
    assert provider.id == "some"
    assert context.program("some") == "/bin/true"
    if isinstance(described, ProgramProvider):
        assert made_for == [described]
    else:
        assert set(made_for) <= {None}
