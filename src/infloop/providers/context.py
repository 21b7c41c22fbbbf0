"""What a transport may use to make a provider of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from infloop.providers.programs import program_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from infloop.model.provider import ProgramProvider
    from infloop.policy.permissions import AskPerson
    from infloop.sandbox.base import Sandbox


class ProviderEnvironment(Protocol):
    """Makes the environment of an agent."""

    def __call__(self, passthrough: Sequence[str]) -> dict[str, str]:
        """Return the base variables and those that a manifest names."""


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """Everything that a transport is given.

    environment      makes the environment of a child
    variables        the operator's own variables: tokens of HTTP providers, programs of agents
    folder           the operator's folder of manifests
    max_command_ms   the longest time that the operator gives a command
    sandbox          makes the sandbox of a child; with a manifest, one that gives the child the
                     hosts, home files and credential that the manifest lists
    ask_person       requests a person's approval; None if nobody can be asked
    max_api_call_ms  the longest time that the operator gives a call of an HTTP provider
    """

    environment: ProviderEnvironment
    variables: Mapping[str, str]
    folder: Path
    max_command_ms: int
    sandbox: Callable[[ProgramProvider | None], Sandbox]
    ask_person: AskPerson | None = None
    max_api_call_ms: int = 3_600_000

    def program(self, provider_id: str) -> str:
        """Return the program that the operator named for a provider; empty for the manifest's."""
        return self.variables.get(program_variable(provider_id), "")
