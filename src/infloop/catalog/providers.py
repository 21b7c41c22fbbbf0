"""The providers of a folder of manifests or connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from infloop.catalog.files import folder_state, read_folder
from infloop.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from infloop.catalog.files import FolderState
    from infloop.model.provider import Provider

    Loaded: TypeAlias = tuple[list[Provider], list[Problem]]
    Read: TypeAlias = Callable[[Path], tuple[Sequence[Provider], list[Problem]]]


def manifests(folder: Path) -> Loaded:
    """Return the providers of a folder of manifests, and all problems."""
    return read_folder(folder, _parse)


def _parse(data: bytes) -> tuple[Provider | None, list[Problem]]:
    # Not above: a workflow without agents needs no provider, and the model takes 6 ms to load.
    from infloop.model.provider import parse_provider

    return parse_provider(data)


class ProviderFiles:
    """Reads `<folder>/*.json`; changes take effect at the next call."""

    def __init__(self, folder: Path, read: Read = manifests) -> None:
        self.folder = folder
        self._read_files = read
        self._state: FolderState | None = None
        self._loaded: Loaded = [], []
        self._by_id: dict[str, Provider] = {}

    def load(self) -> Loaded:
        """Return the valid providers, sorted by label, and all problems.

        Of two providers with the same id the one in the first file is used.
        """
        self._refresh()
        providers, problems = self._loaded
        return list(providers), list(problems)

    def find(self, provider_id: str) -> Provider | None:
        """Return one provider, or None; called for every agent step."""
        self._refresh()
        return self._by_id.get(provider_id)

    def ids(self) -> list[str]:
        """Return the ids of all valid providers."""
        self._refresh()
        return [provider.id for provider in self._loaded[0]]

    @property
    def state(self) -> FolderState | None:
        """The folder when it was last read; it changes with every file, and is None without one."""
        return self._state

    def _refresh(self) -> None:
        """Read the files again if one of them changed."""
        # Before reading, so that a change during the read is noticed next time.
        state = folder_state(self.folder)
        if state is None or state != self._state:
            self._state = state
            self._loaded = self._read()
            self._by_id = {provider.id: provider for provider in self._loaded[0]}

    def _read(self) -> Loaded:
        found, problems = self._read_files(self.folder)
        chosen: dict[str, Provider] = {}
        for provider in found:
            if chosen.setdefault(provider.id, provider) is not provider:
                problems.append(
                    Problem(
                        str(self.folder),
                        f"the provider {provider.id!r} is defined twice; the first file is used",
                        "remove one of them, or change its id",
                        "warning",
                    )
                )
        return sorted(chosen.values(), key=lambda one: (one.label.lower(), one.id)), problems
