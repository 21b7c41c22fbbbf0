"""From a trigger that fires to a run in the queue: webhooks, schedules and changed files alike.

What cannot start is refused, and genuine firings that were refused are recorded, so that the list
of runs shows them.

A webhook's run carries the correlation id of its request. A schedule and a changed file have no
request, so each of their runs gets a new id.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING

from infloop.application.lookup_cache import OncePerTurn
from infloop.errors import (
    AuditError,
    GuardError,
    InfloopError,
    Overloaded,
    StoreError,
    UsageError,
    WorkflowError,
)
from infloop.model.audit import Actor, fingerprint
from infloop.model.inputs import InputError
from infloop.model.template import TooLong
from infloop.policy.repetitions import Repetitions
from infloop.runtime.runs.dispatch import RunRequest
from infloop.runtime.runs.starting import new_correlation_id
from infloop.store.interfaces.queue import QueueFull, Replayed
from infloop.store.interfaces.rate_limits import SharedRateLimit
from infloop.store.interfaces.refusals import RefusedFiring
from infloop.triggers import KINDS, kind_named
from infloop.triggers.firing import prepare
from infloop.triggers.services import SourceServices
from infloop.triggers.webhook import CannotStart, NotQueued, QueuePosition, Webhooks

if TYPE_CHECKING:
    from infloop.catalog.lookup import CatalogLookup
    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonValue
    from infloop.model.workflow import Workflow
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.rate_limits import RateLimits
    from infloop.store.interfaces.refusals import RefusedFirings
    from infloop.triggers.firing import Firing
    from infloop.triggers.kinds.base import TriggerKind
    from infloop.triggers.payload import Values
    from infloop.triggers.services import IsOwnWrite, Source
    from infloop.triggers.webhook import Delivery, WebhookAnswer

_correlation_id: ContextVar[str] = ContextVar("correlation_id", default="")

log = logging.getLogger("infloop.triggers")

_TOO_MANY = 429
_NOTED_AFTERWARDS = (401, _TOO_MANY)
# The answers to genuine requests that should have started a run. A misconfigured trigger (500) has
# not checked who sends, and a replay (409) was answered before.
_REFUSED_FIRINGS = (400, 404, 415, 422, 503)


class TriggerFiring:
    """Turns firings of triggers into queued runs, each on record in the audit log."""

    def __init__(
        self,
        lookup: CatalogLookup,
        dispatcher: Dispatcher,
        refusals: RefusedFirings,
        rates: RateLimits,
        audit: AuditLog,
        clock: Clock,
        *,
        workdir: str,
        requests_per_minute: int,
    ) -> None:
        self.lookup = lookup
        self._lookup_of_requests = OncePerTurn(lookup)
        self.workdir = workdir
        self._dispatcher = dispatcher
        self._refusals = refusals
        self._audit = audit
        self._clock = clock
        self._webhooks = Webhooks(
            self._lookup_of_requests,
            self._enqueue_request,
            per_minute=requests_per_minute,
            count=self._count_request,
        )
        self._requests = SharedRateLimit(rates, "webhook", requests_per_minute)
        self._repetitions = Repetitions()
        self._known: list[Trigger] = []

    async def receive(self, delivery: Delivery, correlation_id: str) -> WebhookAnswer:
        """Return the answer to a webhook; what became of a genuine request is in the audit log.

        Call `note_refusal` after the answer was sent.
        """
        token = _correlation_id.set(correlation_id)
        try:
            answer = await self._webhooks.receive(delivery, self._clock.now_ms())
        finally:
            _correlation_id.reset(token)
        if answer.trigger_id and answer.status not in (202, *_NOTED_AFTERWARDS):
            await self._record(answer, correlation_id)
            if answer.status in _REFUSED_FIRINGS and not delivery.is_trial:
                await self._note_refused_request(answer, correlation_id)
        return answer

    async def _count_request(self, trigger_id: str, now_ms: int) -> int:
        return await self._requests.take(fingerprint(trigger_id), now_ms)

    async def _note_refused_request(self, answer: WebhookAnswer, correlation_id: str) -> None:
        trigger = self.lookup.trigger(answer.trigger_id)
        if trigger is not None:
            message = answer.detail or answer.reason
            await self._note_refused(trigger, answer.reason, message, correlation_id)

    async def note_refusal(self, answer: WebhookAnswer, correlation_id: str) -> None:
        """Record the refusal of a request that is not genuine or one too many.

        Only those for an existing trigger are recorded, which takes a while. So the answer must
        have been sent: its time would tell a stranger which triggers exist.
        """
        if not answer.trigger_id or answer.status not in _NOTED_AFTERWARDS:
            return
        count = 1
        if answer.status == _TOO_MANY:
            count = self._repetitions.count(answer.trigger_id, self._clock.now_ms())
        if count:
            try:
                await self._record(answer, correlation_id, count)
            except StoreError as error:  # it was refused all the same
                log.warning("a refused webhook is not in the audit log: %s", error)

    async def _record(self, answer: WebhookAnswer, correlation_id: str, count: int = 1) -> None:
        trigger = self._lookup_of_requests.trigger(answer.trigger_id)
        name = trigger.display_name if trigger else ""
        details = _details(answer.trigger_id, name, answer.detail) | {"status": answer.status}
        await self._audit.record(
            "webhook.ignored" if answer.status == 204 else "webhook.refused",
            Actor("webhook"),
            outcome=answer.reason,
            correlation_id=correlation_id,
            details=details | ({"count": count} if count > 1 else {}),
        )

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
        log.warning("trigger %r: %s", trigger.display_name, message)

    def write_last_fired(self) -> None:
        """Write when triggers last fired. Blocks for as long as a small file is written."""
        try:
            self.lookup.triggers.flush()
        except (OSError, StoreError) as error:
            log.warning("when triggers fired is not written: %s", _why(error))

    async def start(
        self, trigger: Trigger, values: Values, key: str = "", correlation_id: str = ""
    ) -> bool:
        """Queue the run of a trigger; see `StartRun`. A refusal is recorded."""
        correlation_id = correlation_id or new_correlation_id()
        try:
            return await self._start(trigger, values, key, correlation_id)
        except (OSError, Overloaded, StoreError):  # it will be tried again
            raise
        except InfloopError as error:
            reason = _reason(error)
            await self._record_refusal(trigger, reason, str(error), correlation_id)
            await self._note_refused(trigger, reason, str(error), correlation_id)
            raise

    async def _start(self, trigger: Trigger, values: Values, key: str, correlation_id: str) -> bool:
        workflow: Workflow | None = self.lookup.workflow(trigger.workflow_id)
        if workflow is None:
            raise UsageError(
                f"there is no workflow {trigger.workflow_id!r} that could run", "not-found"
            )
        trusted = kind_named(trigger.kind).is_trusted
        try:
            firing = prepare(trigger, workflow, values, key=key, trusted=trusted)
        except (InputError, TooLong) as error:
            raise UsageError(str(error), "invalid-inputs") from None
        token = _correlation_id.set(correlation_id)
        try:
            return firing is None or await self._enqueue(firing) != "queue-full"
        finally:
            _correlation_id.reset(token)

    async def _record_refusal(
        self, trigger: Trigger, reason: str, message: str, correlation_id: str
    ) -> None:
        """Record the refusal of a firing without a request in the audit log."""
        if not self._repetitions.count(f"{trigger.id}:{reason}", self._clock.now_ms()):
            return
        try:
            await self._audit.record(
                "trigger.refused",
                kind_named(trigger.kind).actor,
                outcome=reason,
                correlation_id=correlation_id,
                workflow_id=trigger.workflow_id,
                details=_details(trigger.id, trigger.display_name, message),
            )
        except StoreError as error:  # it was refused all the same
            log.warning("a refused trigger is not in the audit log: %s", error)

    async def _note_refused(
        self, trigger: Trigger, reason: str, message: str, correlation_id: str
    ) -> None:
        """Record a refused firing for the list of runs; if that fails, the log says so."""
        firing = RefusedFiring(
            trigger=fingerprint(trigger.id),
            name=trigger.display_name,
            kind=trigger.kind,
            workflow_id=trigger.workflow_id,
            reason=reason,
            message=message,
            correlation_id=correlation_id,
            at=self._clock.now_ms(),
        )
        try:
            await self._refusals.note(firing)
        except StoreError as error:
            log.warning("a refused firing of %r is not recorded: %s", firing.name, error)

    async def _enqueue_request(self, firing: Firing) -> QueuePosition | NotQueued:
        """Queue the run of a request durably, or say why not."""
        try:
            return await self._enqueue(firing)
        except Overloaded:
            raise
        except (GuardError, UsageError, WorkflowError) as error:
            return CannotStart(_reason(error), str(error))

    async def _enqueue(self, firing: Firing) -> QueuePosition | NotQueued:
        """Queue a run durably, or say why not; see `Dispatcher.check` for the errors.

        Raises AuditError when it cannot be recorded. It is not queued then.
        """
        correlation_id = _correlation_id.get() or new_correlation_id()
        kind = kind_named(firing.cause.kind)
        added = await self._dispatcher.put(
            RunRequest(
                workflow_id=firing.workflow_id,
                inputs=firing.inputs,
                cause=firing.cause,
                workdir=firing.workdir or self.workdir,
                is_default_workdir=not firing.workdir,
                correlation_id=correlation_id,
                trigger_id=firing.trigger_id,
                workflow_name=firing.workflow_name,
                key=firing.key,
                fingerprint=firing.fingerprint,
            )
        )
        if isinstance(added, QueueFull):
            return "queue-full"
        if isinstance(added, Replayed):
            return "replayed"
        try:
            await self._audit.record(
                kind.queued_event,
                kind.actor,
                correlation_id=correlation_id,
                run_id=added.run_id,
                workflow_id=firing.workflow_id,
                details=_details(firing.trigger_id, firing.cause.detail),
            )
        except AuditError:
            await self._dispatcher.withdraw(added)
            raise
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


def _reason(error: InfloopError) -> str:
    """Return a word for why a run could not start."""
    match error:
        case WorkflowError():
            return "workflow-refused"
        case GuardError():
            return "directory-refused"
        case UsageError(code=("not-found" | "invalid-inputs") as code):
            return str(code)
        case _:
            return "cannot-start"


def _details(trigger_id: str, name: str, detail: str = "") -> dict[str, JsonValue]:
    named: dict[str, JsonValue] = {"trigger": fingerprint(trigger_id), "name": name}
    return named | ({"detail": detail} if detail else {})
