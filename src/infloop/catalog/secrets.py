"""The secrets in trigger files, provider manifests and connections, or named by them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from infloop.errors import InfloopError
from infloop.policy.leaks.known import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from infloop.catalog.providers import ProviderFiles
    from infloop.model.trigger import Trigger


class FileSecrets:
    """Reads secrets from files; new and changed files take effect at once.

    A variable that a manifest names is read from `environment`. A file that cannot be read is
    skipped.
    """

    def __init__(
        self,
        triggers: Callable[[], Iterable[Trigger]],
        providers: Sequence[ProviderFiles],
        environment: Mapping[str, str],
    ) -> None:
        self._triggers = triggers
        self._providers = providers
        self._environment = environment

    def values(self) -> Iterator[Secret]:
        """Yield all present secrets."""
        with suppress(InfloopError, OSError):
            for trigger in self._triggers():
                for value in filter(None, (trigger.secret, trigger.previous_secret)):
                    yield Secret(f"trigger:{trigger.id}", value)
        for folder in self._providers:
            with suppress(InfloopError, OSError):
                for provider in folder.load()[0]:
                    for value in provider.secrets(self._environment):
                        yield Secret(f"provider:{provider.id}", value)
