"""Which agent works when nobody names one: the first of a list that is installed and logged in."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from infloop.errors import UsageError
from infloop.model.provider import HttpProvider, ProgramProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.application.resources import FileResources
    from infloop.model.provider import Provider

PREFERRED = ("claude", "codex", "gemini", "opencode")
_SUGGESTED = 2
"""How many agents are suggested to a person who has none."""


class AgentChoice:
    """Finds the agent that was asked for, or one that is installed."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources
        self._login_of = resources.login_of
        self._known = known_providers(resources)

    def find(self, wanted: str) -> str:
        """Return the id of an agent that can work here; an empty `wanted` means any.

        Raises UsageError that says what to install.
        """
        if not wanted:
            found = self.installed()
            if not found:
                raise UsageError(
                    f"{self.how_to_get_one()}. `infloop demo` shows a loop without one"
                )
            return found
        provider = self.named(wanted)
        if isinstance(provider, ProgramProvider) and not self.is_installed(provider):
            way = f"`{provider.setup.install}`" if provider.setup.install else "put it on PATH"
            raise UsageError(
                f"the program {provider.bin!r} of {wanted!r} is not installed; install it: {way}"
            )
        return wanted

    def named(self, wanted: str) -> Provider:
        """Return an agent by its id, installed or not. Raises UsageError."""
        if wanted not in self._known:
            raise UsageError(f"there is no agent {wanted[:80]!r}{suggestion(wanted, self._known)}")
        provider = self._known[wanted]
        if isinstance(provider, HttpProvider):
            raise UsageError(
                f"{wanted!r} is a model without tools: it cannot change files; name an agent"
            )
        return provider

    def installed(self) -> str:
        """Return the id of the first agent that is installed, if possible one with a login.

        It is empty if none is installed.
        """
        known = (self._known[name] for name in PREFERRED if name in self._known)
        usable = [each for each in known if self.is_installed(each)]
        ready = (each for each in usable if self._login_of(each).status != "missing")
        chosen = next(ready, usable[0] if usable else None)
        return chosen.id if chosen else ""

    def missing_login(self, agent: str) -> str:
        """Return how to log in to an agent; empty if a login was found or none is needed."""
        login = self._login_of(self._known[agent])
        return login.command or "as it asks" if login.status == "missing" else ""

    def is_installed(self, provider: Provider) -> bool:
        return isinstance(provider, ProgramProvider) and bool(self._resources.program_of(provider))

    def how_to_get_one(self) -> str:
        """Return what to tell a person who has no agent."""
        known = [self._known[name] for name in PREFERRED if name in self._known]
        lines = [
            f"`{each.setup.install}`"
            for each in known
            if isinstance(each, ProgramProvider) and each.setup.install
        ]
        return (
            f"no agent is installed (looked for {', '.join(each.id for each in known)}). Install "
            f"one: {'; or '.join(lines[:_SUGGESTED])}"
        )


def known_providers(resources: FileResources) -> dict[str, Provider]:
    """Return all providers by id; the operator's hide shipped ones."""
    found: dict[str, Provider] = {}
    for folder in resources.folders.providers:
        for provider in folder.load()[0]:
            found.setdefault(provider.id, provider)
    return found


def suggestion(mistyped: str, known: Mapping[str, object]) -> str:
    """Return the id that was probably meant, or all of them."""
    near = get_close_matches(mistyped[:80], known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are: {', '.join(sorted(known))}"
