"""Makes the provider of a manifest: one case per transport.

Each transport is imported when it is first used: the messages of the Agent Client Protocol alone
take half a second to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infloop.model.provider import (
    AcpProvider,
    BuiltinProvider,
    CliProvider,
    HttpProvider,
    ScriptedProvider,
)

if TYPE_CHECKING:
    from infloop.model.provider import Provider as Manifest
    from infloop.providers.base import Provider
    from infloop.providers.context import ProviderContext


def make_provider(manifest: Manifest, context: ProviderContext) -> Provider:
    """Return the provider that a manifest describes."""
    match manifest:
        case CliProvider():
            from infloop.providers.cli.agent import cli_provider

            return cli_provider(manifest, context)
        case AcpProvider():
            from infloop.providers.acp.agent import acp_provider

            return acp_provider(manifest, context)
        case HttpProvider():
            from infloop.providers.http.agent import http_provider

            return http_provider(manifest, context)
        case ScriptedProvider():
            from infloop.providers.scripted import scripted_provider

            return scripted_provider(manifest, context)
        case BuiltinProvider():
            from infloop.providers.builtin.agent import builtin_provider

            return builtin_provider(manifest, context)
        case _:
            assert_never(manifest)
