"""What the server is made of, given by the application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from infloop.catalog import ProviderFiles, WorkflowCatalog
    from infloop.model.provider import HttpProvider
    from infloop.model.values import JsonObject
    from infloop.policy.rate import RateLimit
    from infloop.providers.http.models import Offer
    from infloop.runtime.clock import Clock
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.runtime.workspaces import Workspaces
    from infloop.store.audit.log import AuditLog
    from infloop.web.credentials import Sessions
    from infloop.web.exposure import Posture
    from infloop.web.metrics import Metrics
    from infloop.web.streams import Frames, Streams
    from infloop.web.triggering import Triggering


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that the server reads and writes; runs work in `workdir` unless told where."""

    workflows: WorkflowCatalog
    providers: Sequence[ProviderFiles]
    connections: Path
    audit: Path
    home: Path
    workdir: Path


@dataclass(frozen=True, slots=True)
class WebParts:
    """Everything that routes and guards are handed."""

    service: RunService
    dispatcher: Dispatcher
    triggering: Triggering
    workspaces: Workspaces
    audit: AuditLog
    clock: Clock
    posture: Posture
    sessions: Sessions
    logins: RateLimit
    streams: Streams
    frames: Frames
    metrics: Metrics
    places: Places
    version: str
    profiles: Callable[[HttpProvider], Awaitable[Offer]]
    settings: Callable[[], JsonObject]
    doctor: Callable[[], Awaitable[JsonObject]]

    def known_providers(self) -> list[str]:
        """Return the ids that an agent node can name."""
        found = (name for folder in self.places.providers for name in folder.ids())
        return list(dict.fromkeys(found))
