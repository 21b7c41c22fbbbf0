"""From what a trigger asks for to the queue: webhooks, schedules and changed files alike.

What is asked for carries the correlation id of the request that caused it; a schedule and a file
have none, so their runs get one each.
"""

from __future__ import annotations

import asyncio
import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING

from infloop.errors import StoreError, UsageError
from infloop.model.audit import Actor, mark_of
from infloop.model.events import Recorded, RunFinished, StepStarted, TreeSaved
from infloop.model.inputs import InputError
from infloop.model.template import TooLong
from infloop.runtime.runs.dispatch import Asked
from infloop.store.queue import Full
from infloop.triggers import KINDS, kind_named
from infloop.triggers.filewatch import OwnWrites
from infloop.triggers.firing import prepare, public_name
from infloop.triggers.scheduler import Scheduler
from infloop.triggers.services import SourceServices
from infloop.triggers.webhook import QueuePosition, Webhooks
from infloop.web.errors import log
from infloop.web.lookup_cache import OncePerTurn

if TYPE_CHECKING:
    from infloop.catalog.lookup import CatalogLookup
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonValue
    from infloop.model.workflow import Workflow
    from infloop.runtime.clock import Clock
    from infloop.runtime.event_bus import Said
    from infloop.runtime.runs.dispatch import Dispatcher
    from infloop.runtime.runs.service import RunService
    from infloop.store.audit.log import AuditLog
    from infloop.triggers.firing import Firing
    from infloop.triggers.kinds.base import TriggerKind
    from infloop.triggers.payload import Values
    from infloop.triggers.webhook import Delivery, WebhookAnswer

SETTLE_SECONDS = 5.0

_request: ContextVar[str] = ContextVar("correlation_id", default="")


class Triggering:
    """Lets triggers start runs, as long as `run` is running."""

    def __init__(
        self,
        lookup: CatalogLookup,
        service: RunService,
        dispatcher: Dispatcher,
        audit: AuditLog,
        clock: Clock,
        workdir: str,
        requests_per_minute: int,
    ) -> None:
        self.lookup = lookup
        self._dispatcher = dispatcher
        self._audit = audit
        self._clock = clock
        self._workdir = workdir
        self._own = OwnWrites()
        self._directories: dict[str, tuple[str, set[str]]] = {}
        self._webhooks = Webhooks(
            OncePerTurn(lookup), self._enqueue, per_minute=requests_per_minute
        )
        self._known: list[Trigger] = []
        sources = (kind.source(self._services(kind)) for kind in KINDS)
        self._sources = [source for source in sources if source is not None]
        self.scheduler = next(one for one in self._sources if isinstance(one, Scheduler))
        service.news.watch(self._note)

    async def run(self) -> None:
        """Start what is due and what waits for files, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for source in self._sources:
                    group.create_task(source.run())
                group.create_task(self._settle())
        finally:
            _write_fired(self.lookup)

    async def receive(self, delivery: Delivery, correlation_id: str) -> WebhookAnswer:
        """Return the answer to a webhook, and write what an existing trigger was asked."""
        token = _request.set(correlation_id)
        try:
            answer = await self._webhooks.receive(delivery, self._clock.now_ms())
        finally:
            _request.reset(token)
        if answer.trigger_id and answer.status != 202:
            ignored = answer.status == 204
            await self._audit.record(
                "webhook.ignored" if ignored else "webhook.refused",
                Actor("webhook"),
                outcome=answer.reason,
                correlation_id=correlation_id,
                details=_details(answer.trigger_id, answer.detail),
            )
        return answer

    async def answer_missed(self, trigger: Trigger, correlation_id: str, *, start: bool) -> bool:
        """Start a run for what a schedule missed, or let it be; False when it cannot be started."""
        token = _request.set(correlation_id)
        try:
            return await self.scheduler.answer(trigger, start=start)
        finally:
            _request.reset(token)

    # -- queueing ----------------------------------------------------------------------------

    async def _enqueue(self, firing: Firing) -> QueuePosition | None:
        """Queue a run durably; None when the queue is full.

        Raises AuditError when the run waits and is not on record: nobody is told that it does.
        """
        correlation_id = _request.get() or f"cid_{secrets.token_hex(16)}"
        kind = kind_named(firing.cause.kind)
        put = await self._dispatcher.put(
            Asked(
                firing.workflow_id,
                firing.inputs,
                firing.cause,
                self._workdir,
                correlation_id,
                firing.trigger_id,
                key=firing.key,
            )
        )
        if isinstance(put, Full):
            return None
        await self._audit.record(
            kind.queued_event,
            kind.actor,
            correlation_id=correlation_id,
            workflow_id=firing.workflow_id,
            details=_details(firing.trigger_id),
        )
        if not put.repeated:
            await self._remember(firing.trigger_id, self._clock.now_ms())
        return QueuePosition(put.id, put.position)

    async def _remember(self, trigger_id: str, now_ms: int) -> None:
        """Remember when a trigger fired."""
        if self.lookup.triggers.is_due(trigger_id, now_ms):
            await asyncio.to_thread(_remember, self.lookup, trigger_id, now_ms)
        else:
            _remember(self.lookup, trigger_id, now_ms)

    def _services(self, kind: TriggerKind) -> SourceServices:
        return SourceServices(
            triggers=lambda: [one for one in self._triggers() if one.kind == kind.name],
            start=self._start,
            notify=self._tell,
            is_own_write=self._own.owns,
            clock=self._clock,
            state_dir=self.lookup.triggers.folder,
        )

    async def _start(self, trigger: Trigger, values: Values, key: str = "") -> bool:
        """Queue what a trigger asks for; False when there is no room at the moment."""
        trusted = kind_named(trigger.kind).is_trusted
        workflow: Workflow | None = self.lookup.workflow(trigger.workflow_id)
        if workflow is None:
            raise UsageError(f"there is no workflow {trigger.workflow_id!r} that could run")
        try:
            firing = prepare(trigger, workflow, values, key=key, trusted=trusted)
        except (InputError, TooLong) as error:
            raise UsageError(str(error)) from None
        return firing is None or await self._enqueue(firing) is not None

    def _triggers(self) -> list[Trigger]:
        """Return the triggers as they are, or as they were when their folder could be read."""
        try:
            self._known = self.lookup.triggers.all()
        except UsageError as error:
            log.warning("%s", error)
        return self._known

    def _tell(self, trigger: Trigger, message: str) -> None:
        log.warning("trigger %r: %s", public_name(trigger), message)

    async def _settle(self) -> None:
        """Write now and then when triggers last fired."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            await asyncio.to_thread(_write_fired, self.lookup)

    # -- a run's own writes ------------------------------------------------------------------

    def _note(self, said: Said) -> None:
        """Remember where runs of triggers write, so that they do not start themselves again."""
        if not isinstance(said, Recorded):
            if said["type"] == "trigger_started" and said["triggerId"]:
                run_id, trigger_id = str(said["runId"]), str(said["triggerId"])
                self._directories[run_id] = trigger_id, {self._workdir}
                self._own.began(trigger_id, run_id, [self._workdir])
            return
        known = self._directories.get(said.run_id)
        if known is None:
            return
        if isinstance(said.event, RunFinished):
            del self._directories[said.run_id]
            self._own.ended(said.run_id, self._clock.now_ms())
            return
        trigger_id, directories = known
        new = _directories(said) - directories
        if new:
            directories |= new
            self._own.began(trigger_id, said.run_id, directories)


def _remember(lookup: CatalogLookup, trigger_id: str, now_ms: int) -> None:
    """Remember when a trigger fired. Its run waits already, so nothing that fails here counts."""
    try:
        lookup.fired(trigger_id, now_ms)
    except (OSError, StoreError) as error:
        log.warning("when trigger %r fired is not written: %s", mark_of(trigger_id), _why(error))


def _write_fired(lookup: CatalogLookup) -> None:
    try:
        lookup.triggers.flush()
    except (OSError, StoreError) as error:
        log.warning("when triggers fired is not written: %s", _why(error))


def _why(error: OSError | StoreError) -> str:
    """Return what went wrong without the name of the file, which is a trigger's id."""
    return (error.strerror or "cannot be written") if isinstance(error, OSError) else str(error)


def _directories(said: Recorded) -> set[str]:
    """Return the directories that an event names as those in which a step works."""
    event = said.event
    if isinstance(event, TreeSaved):
        return {event.directory}
    if not isinstance(event, StepStarted):
        return set()
    command = event.config.get("command")
    places: list[JsonValue] = [event.config.get("cwd")]
    if isinstance(command, dict):
        places.append(command.get("cwd"))
    return {place for place in places if isinstance(place, str) and place.startswith("/")}


def _details(trigger_id: str, detail: str = "") -> dict[str, JsonValue]:
    named: dict[str, JsonValue] = {"trigger": mark_of(trigger_id)}
    return named | ({"detail": detail} if detail else {})
