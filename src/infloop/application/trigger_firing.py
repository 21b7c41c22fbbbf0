"""From a trigger that fires to a run in the queue: webhooks, schedules and changed files alike.

A webhook's run carries the correlation id of its request. A schedule and a changed file have no
request, so each of their runs gets a new id.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING

from infloop.application.lookup_cache import OncePerTurn
from infloop.errors import StoreError, UsageError
from infloop.model.audit import Actor, fingerprint
from infloop.model.inputs import InputError
from infloop.model.template import TooLong
from infloop.runtime.runs.dispatch import RunRequest
from infloop.store.interfaces.queue import QueueFull
from infloop.triggers import KINDS, kind_named
from infloop.triggers.firing import prepare, public_name
from infloop.triggers.services import SourceServices
from infloop.triggers.webhook import QueuePosition, Webhooks

if TYPE_CHECKING:
    from infloop.catalog.lookup import CatalogLookup
    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonValue
    from infloop.model.workflow import Workflow
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.store.audit.log import AuditLog
    from infloop.triggers.firing import Firing
    from infloop.triggers.kinds.base import TriggerKind
    from infloop.triggers.payload import Values
    from infloop.triggers.services import IsOwnWrite, Source
    from infloop.triggers.webhook import Delivery, WebhookAnswer

_correlation_id: ContextVar[str] = ContextVar("correlation_id", default="")

log = logging.getLogger("infloop.triggers")


class TriggerFiring:
    """Turns firings of triggers into queued runs, each on record in the audit log."""

    def __init__(
        self,
        lookup: CatalogLookup,
        dispatcher: Dispatcher,
        audit: AuditLog,
        clock: Clock,
        *,
        workdir: str,
        requests_per_minute: int,
    ) -> None:
        self.lookup = lookup
        self.workdir = workdir
        self._dispatcher = dispatcher
        self._audit = audit
        self._clock = clock
        self._webhooks = Webhooks(
            OncePerTurn(lookup), self._enqueue, per_minute=requests_per_minute
        )
        self._known: list[Trigger] = []

    async def receive(self, delivery: Delivery, correlation_id: str) -> WebhookAnswer:
        """Return the answer to a webhook; an existing trigger's refusal is in the audit log."""
        token = _correlation_id.set(correlation_id)
        try:
            answer = await self._webhooks.receive(delivery, self._clock.now_ms())
        finally:
            _correlation_id.reset(token)
        if answer.trigger_id and answer.status != 202:
            await self._audit.record(
                "webhook.ignored" if answer.status == 204 else "webhook.refused",
                Actor("webhook"),
                outcome=answer.reason,
                correlation_id=correlation_id,
                details=_details(answer.trigger_id, answer.detail),
            )
        return answer

    def sources(self, is_own_write: IsOwnWrite) -> list[Source]:
        """Return what fires the triggers, of all kinds that do not wait for requests."""
        made = (kind.source(self._services(kind, is_own_write)) for kind in KINDS)
        return [source for source in made if source is not None]

    def _services(self, kind: TriggerKind, is_own_write: IsOwnWrite) -> SourceServices:
        return SourceServices(
            triggers=lambda: [one for one in self._triggers() if one.kind == kind.name],
            start=self.start,
            notify=self.warn,
            is_own_write=is_own_write,
            clock=self._clock,
            state_dir=self.lookup.triggers.folder,
        )

    def _triggers(self) -> list[Trigger]:
        """Return the triggers now, or as they were when their folder could last be read."""
        try:
            self._known = self.lookup.triggers.all()
        except UsageError as error:
            log.warning("%s", error)
        return self._known

    def warn(self, trigger: Trigger, message: str) -> None:
        log.warning("trigger %r: %s", public_name(trigger), message)

    def write_last_fired(self) -> None:
        """Write when triggers last fired. Blocks for as long as a small file is written."""
        try:
            self.lookup.triggers.flush()
        except (OSError, StoreError) as error:
            log.warning("when triggers fired is not written: %s", _why(error))

    async def start(
        self, trigger: Trigger, values: Values, key: str = "", correlation_id: str = ""
    ) -> bool:
        """Queue the run of a trigger; see `StartRun`."""
        workflow: Workflow | None = self.lookup.workflow(trigger.workflow_id)
        if workflow is None:
            raise UsageError(f"there is no workflow {trigger.workflow_id!r} that could run")
        trusted = kind_named(trigger.kind).is_trusted
        try:
            firing = prepare(trigger, workflow, values, key=key, trusted=trusted)
        except (InputError, TooLong) as error:
            raise UsageError(str(error)) from None
        token = _correlation_id.set(correlation_id)
        try:
            return firing is None or await self._enqueue(firing) is not None
        finally:
            _correlation_id.reset(token)

    async def _enqueue(self, firing: Firing) -> QueuePosition | None:
        """Queue a run durably; None when the queue is full.

        Raises AuditError when the run is queued and not on record: the sender is not told of it.
        """
        correlation_id = _correlation_id.get() or f"cid_{secrets.token_hex(16)}"
        kind = kind_named(firing.cause.kind)
        added = await self._dispatcher.put(
            RunRequest(
                workflow_id=firing.workflow_id,
                inputs=firing.inputs,
                cause=firing.cause,
                workdir=self.workdir,
                correlation_id=correlation_id,
                trigger_id=firing.trigger_id,
                key=firing.key,
            )
        )
        if isinstance(added, QueueFull):
            return None
        await self._audit.record(
            kind.queued_event,
            kind.actor,
            correlation_id=correlation_id,
            workflow_id=firing.workflow_id,
            details=_details(firing.trigger_id),
        )
        if not added.repeated:
            await self._note_fired(firing.trigger_id, self._clock.now_ms())
        return QueuePosition(added.id, added.position)

    async def _note_fired(self, trigger_id: str, now_ms: int) -> None:
        if self.lookup.triggers.is_due(trigger_id, now_ms):
            await asyncio.to_thread(_note_fired, self.lookup, trigger_id, now_ms)
        else:
            _note_fired(self.lookup, trigger_id, now_ms)


def _note_fired(lookup: CatalogLookup, trigger_id: str, now_ms: int) -> None:
    """Remember when a trigger fired. Its run is queued already, so a failure is only logged."""
    try:
        lookup.fired(trigger_id, now_ms)
    except (OSError, StoreError) as error:
        log.warning(
            "when trigger %r fired is not written: %s", fingerprint(trigger_id), _why(error)
        )


def _why(error: OSError | StoreError) -> str:
    """Return what went wrong without the name of the file, which is a trigger's id."""
    return (error.strerror or "cannot be written") if isinstance(error, OSError) else str(error)


def _details(trigger_id: str, detail: str = "") -> dict[str, JsonValue]:
    named: dict[str, JsonValue] = {"trigger": fingerprint(trigger_id)}
    return named | ({"detail": detail} if detail else {})
