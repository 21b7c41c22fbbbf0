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
from infloop.errors import AuditError, StoreError, UsageError
from infloop.model.audit import SYSTEM, Actor, fingerprint
from infloop.model.inputs import InputError
from infloop.model.template import TooLong
from infloop.runtime.runs.dispatch import RunRequest
from infloop.store.interfaces.queue import QueueFull
from infloop.triggers.firing import name_of, prepare
from infloop.triggers.schedule import Timetable
from infloop.triggers.scheduler import schedule_key, schedule_values
from infloop.triggers.watcher import changed_values
from infloop.triggers.webhook import Place, Webhooks

if TYPE_CHECKING:
    from infloop.catalog.lookup import CatalogDesk
    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonValue
    from infloop.model.workflow import Workflow
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.store.audit.log import AuditLog
    from infloop.triggers.filewatch import Changes
    from infloop.triggers.firing import Firing
    from infloop.triggers.payload import Values
    from infloop.triggers.schedule import Missed
    from infloop.triggers.webhook import Answer, Delivery

_correlation_id: ContextVar[str] = ContextVar("correlation_id", default="")

log = logging.getLogger("infloop.triggers")


class TriggerFiring:
    """Turns firings of triggers into queued runs, each on record in the audit log."""

    def __init__(
        self,
        lookup: CatalogDesk,
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

    async def receive(self, delivery: Delivery, correlation_id: str) -> Answer:
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

    async def start_due(
        self, trigger: Trigger, due_ms: int, missed: Missed | None, correlation_id: str = ""
    ) -> bool:
        """Queue the run of a schedule that is due; False when there is no room at the moment."""
        assert trigger.schedule is not None
        values = schedule_values(Timetable(trigger.schedule), due_ms, missed)
        token = _correlation_id.set(correlation_id)
        try:
            return await self._start(trigger, values, schedule_key(trigger, due_ms), trusted=True)
        finally:
            _correlation_id.reset(token)

    async def start_changed(self, trigger: Trigger, changes: Changes) -> bool:
        """Queue the run of a trigger whose files changed; False when there is no room."""
        assert trigger.files is not None
        try:
            return await self._start(trigger, changed_values(trigger.files, changes))
        except AuditError as error:
            # The run is queued, and has no key by which a second one would be recognised.
            self.warn(trigger, f"starts a run that is not on record: {error}")
            return True

    def triggers(self) -> list[Trigger]:
        """Return the triggers now, or as they were when their folder could last be read."""
        try:
            self._known = self.lookup.triggers.all()
        except UsageError as error:
            log.warning("%s", error)
        return self._known

    def warn(self, trigger: Trigger, message: str) -> None:
        log.warning("trigger %r: %s", name_of(trigger), message)

    def write_last_fired(self) -> None:
        """Write when triggers last fired. Blocks for as long as a small file is written."""
        try:
            self.lookup.triggers.settle()
        except (OSError, StoreError) as error:
            log.warning("when triggers fired is not written: %s", _why(error))

    async def _start(
        self, trigger: Trigger, values: Values, key: str = "", *, trusted: bool = False
    ) -> bool:
        workflow: Workflow | None = self.lookup.workflow(trigger.workflow_id)
        if workflow is None:
            raise UsageError(f"there is no workflow {trigger.workflow_id!r} that could run")
        try:
            firing = prepare(trigger, workflow, values, key=key, trusted=trusted)
        except (InputError, TooLong) as error:
            raise UsageError(str(error)) from None
        return firing is None or await self._enqueue(firing) is not None

    async def _enqueue(self, firing: Firing) -> Place | None:
        """Queue a run durably; None when the queue is full.

        Raises AuditError when the run is queued and not on record: the sender is not told of it.
        """
        correlation_id = _correlation_id.get() or f"cid_{secrets.token_hex(16)}"
        by_webhook = firing.cause.kind == "webhook"
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
            "webhook.accepted" if by_webhook else "run.queued",
            Actor("webhook") if by_webhook else SYSTEM,
            correlation_id=correlation_id,
            workflow_id=firing.workflow_id,
            details=_details(firing.trigger_id),
        )
        if not added.repeated:
            await self._note_fired(firing.trigger_id, self._clock.now_ms())
        return Place(added.id, added.position)

    async def _note_fired(self, trigger_id: str, now_ms: int) -> None:
        if self.lookup.triggers.is_due(trigger_id, now_ms):
            await asyncio.to_thread(_note_fired, self.lookup, trigger_id, now_ms)
        else:
            _note_fired(self.lookup, trigger_id, now_ms)


def _note_fired(lookup: CatalogDesk, trigger_id: str, now_ms: int) -> None:
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
