"""Starts queued runs when there is capacity, in total and for each workflow.

- An entry leaves the queue in the transaction that creates its run. So a run starts exactly once,
  even if a process dies in between.
- What could not start now is refused before it is queued, with the reason.
- An entry that cannot start when its turn comes is held with the reason, and tried again from time
  to time. It never disappears: it becomes a run, or somebody removes it.
- When the budget is used up, the queue is held. Its entries stay on disk until there is money again
  or another process takes them.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import (
    AuditError,
    BudgetError,
    Fenced,
    Overloaded,
    StoreError,
    UsageError,
    WorkflowError,
)
from infloop.model.audit import SYSTEM
from infloop.model.inputs import resolve_inputs
from infloop.store.interfaces.queue import (
    Enqueued,
    QueuedRun,
    QueueFull,
    Replayed,
    requeue_from_dead_owners,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.model.clock import Clock
    from infloop.model.events import Cause
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.definitions import PreparedDefinition
    from infloop.runtime.runs.service import RunService
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.queue import QueueEntry, RunQueue

    LoadDefinition = Callable[[str], Awaitable[PreparedDefinition]]
    """Reads a workflow as it is now; UsageError if there is none, WorkflowError if it is faulty."""

POLL_SECONDS = 1.0
"""How often the queue is read for what other processes did."""

REQUEUE_SECONDS = 15.0
"""How often entries of dead processes are put back into the queue, and held ones tried again."""

STOPPING_RETRY_SECONDS = 30

UNLIMITED = 1_000_000

_log = logging.getLogger("infloop.runs")


class RunRequest(msgspec.Struct, frozen=True):
    """A run that is to be queued; `key` recognises a repeated request, `fingerprint` a replay."""

    workflow_id: str
    inputs: JsonObject
    cause: Cause
    workdir: str
    correlation_id: str
    trigger_id: str = ""
    workflow_name: str = ""
    priority: int = 0
    key: str = ""
    fingerprint: str = ""


class Capacity(msgspec.Struct, frozen=True):
    """How many runs are live at the same time, and how many may wait."""

    runs: int = 4
    queued: int = 100


class Dispatcher:
    """Takes from the queue what this process has capacity for.

    With `own_only` it takes only what was queued through it: a process that ends with its client
    must not take the runs of others.
    """

    def __init__(
        self,
        service: RunService,
        queue: RunQueue,
        clock: Clock,
        audit: AuditLog,
        load: LoadDefinition,
        capacity: Capacity,
        *,
        own_only: bool = False,
    ) -> None:
        self._service = service
        self.queue = queue
        self._clock = clock
        self._audit = audit
        self._load = load
        self.capacity = capacity
        self._max_concurrent: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._held = ""
        self._closed = False
        self._checks: dict[tuple[str, str, Cause], asyncio.Task[None]] = {}
        self._not_started: list[str] = []
        self._own: set[str] | None = set() if own_only else None
        service.on_end(self._wake.set)

    # -- the queue ---------------------------------------------------------------------------

    async def put(self, request: RunRequest) -> Enqueued | QueueFull | Replayed:
        """Queue a run that could start now; it is durable when this returns.

        See `check` for the errors.
        """
        await self.check(request)
        run_id = str(uuid.uuid4())
        run = QueuedRun(
            id=queue_id(run_id),
            run_id=run_id,
            workflow_id=request.workflow_id,
            inputs=request.inputs,
            correlation_id=request.correlation_id,
            queued_at=self._clock.now_ms(),
            cause=request.cause,
            priority=request.priority,
            idempotency_key=request.key,
            fingerprint=request.fingerprint,
            extra={
                "workdir": request.workdir,
                "triggerId": request.trigger_id,
                "workflowName": request.workflow_name,
            },
        )
        added = await self.queue.put(run, limit=self.capacity.queued)
        if isinstance(added, Enqueued) and not added.repeated:
            if self._own is not None:
                self._own.add(added.id)
            self._publish(
                "trigger_enqueued",
                run,
                inputs=run.inputs,
                position=added.position,
                receivedAt=run.queued_at,
            )
            self._wake.set()
        return added

    async def check(self, request: RunRequest) -> None:
        """Raise if a run could not be queued and start now.

        UsageError, WorkflowError, GuardError or StoreError say why it could not start; Overloaded,
        that this process stops. Without a budget it can be queued: it waits for money.
        """
        await self._check_start(request)
        if self._closed:
            raise Overloaded(
                "the server is stopping and takes no more runs; try again when it is back",
                "stopping",
                STOPPING_RETRY_SECONDS,
            )

    async def _check_start(self, request: RunRequest) -> None:
        """Check whether a run could start; equal requests at the same time share a check."""
        key = request.workflow_id, request.workdir, request.cause
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = asyncio.create_task(self._check_now(*key))
            check.add_done_callback(lambda _: self._checks.pop(key))
        await asyncio.shield(check)

    async def _check_now(self, workflow_id: str, workdir: str, cause: Cause) -> None:
        definition = await self._load(workflow_id)
        await self._service.check_start(definition, workdir=workdir, cause=cause)

    def close(self) -> None:
        """Queue no more runs, because the process stops."""
        self._closed = True

    async def remove(self, entry_id: str) -> bool:
        """Remove a waiting run from the queue; say whether it was waiting."""
        entry = await self.queue.entry(entry_id)
        removed = await self.queue.remove(entry_id)
        if removed:
            self._publish("trigger_removed", entry.run, reason="user-cancelled")
        return removed

    async def withdraw(self, added: Enqueued) -> None:
        """Take back what `put` added, because its request cannot be answered."""
        if added.repeated:  # an earlier request was answered
            return
        entry = await self.queue.entry(added.id)
        if await self.queue.withdraw(added.id):
            if self._own is not None:
                self._own.discard(added.id)
            self._publish("trigger_removed", entry.run, reason="not-recorded")

    @property
    def held(self) -> str:
        """Why nothing is taken from the queue at the moment; empty if it is not held."""
        return self._held

    # -- starting ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Start queued runs until cancelled."""
        loop = asyncio.get_running_loop()
        last_requeue = -REQUEUE_SECONDS
        while True:
            self._wake.clear()
            with suppress(StoreError):  # tried again: a full disk or a lock can be temporary
                await self._requeue_not_started()
                if loop.time() - last_requeue >= REQUEUE_SECONDS:
                    await requeue_from_dead_owners(self.queue, self._service.store.liveness)
                    await self.queue.retry_held(only=self._own)
                    last_requeue = loop.time()
                while await self._has_budget() and await self._fill():
                    pass
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()

    async def _has_budget(self) -> bool:
        """Hold the queue while the budget is used up, and release it when there is money again."""
        owner = self._service.instance.id
        try:
            await self._service.check_resources()
        except BudgetError as error:
            if not self._held:
                await self.queue.hold(owner, str(error), self._clock.now_ms())
                self._held = str(error)
                await self._audit.record("queue.held", SYSTEM, details={"reason": self._held})
            return False
        if self._held:
            await self.queue.release(owner)
            self._held = ""
            await self._audit.record("queue.released", SYSTEM)
        return True

    async def _fill(self) -> bool:
        """Start all that there is capacity for; say whether there may be more."""
        live = self._service.live()
        free = self.capacity.runs - len(live)
        if free < 1:
            return False
        counts = Counter(live.values())
        # The limit of a workflow is known once one of its runs has been started.
        slots = {name: limit - counts[name] for name, limit in self._max_concurrent.items()}
        owner = self._service.instance.id
        taken = await self.queue.take(owner, free, slots=slots, only=self._own)
        names = {entry.run.workflow_id for entry in taken}
        # Runs that start together share one read of their workflow.
        definitions = {name: asyncio.ensure_future(self._load(name)) for name in names}
        go_on = await asyncio.gather(
            *(self._start_or_requeue(each, definitions[each.run.workflow_id]) for each in taken)
        )
        await self._requeue_not_started()
        return bool(taken) and all(go_on)

    async def _start_or_requeue(
        self, entry: QueueEntry, definition: Awaitable[PreparedDefinition]
    ) -> bool:
        """Start, hold or requeue a run; say whether other runs may start."""
        try:
            started = await self._start_or_hold(entry, definition)
        except Fenced:
            started = True  # another process took it because it saw this one as dead
        except (BudgetError, StoreError) as error:
            if isinstance(error, AuditError):
                _log.error(
                    "run %r waits, because it cannot be recorded: %s", entry.run.run_id, error
                )
            self._not_started.append(entry.run.id)
            return False
        if started and self._own is not None:
            self._own.discard(entry.run.id)
        return True

    async def _start_or_hold(
        self, entry: QueueEntry, definition: Awaitable[PreparedDefinition]
    ) -> bool:
        """Start a run, or hold it with the reason; say whether it started."""
        try:
            await self._start(entry, await definition)
        except (BudgetError, StoreError):
            raise
        except UsageError as error:
            await self._hold(entry, "workflow-deleted", error)
        except WorkflowError as error:
            await self._hold(entry, "workflow-refused", error)
        except Exception as error:  # noqa: BLE001  (one run that cannot start blocks no other)
            await self._hold(entry, "engine-start-failed", error)
        else:
            if entry.reason:  # what is held for the same reason can start too
                await self.queue.release_held(entry.run.workflow_id, entry.reason)
            return True
        return False

    async def _requeue_not_started(self) -> None:
        """Put back entries that were taken and could not start; a failure is tried again."""
        while self._not_started:
            with suppress(Fenced):
                await self.queue.requeue(self._not_started[-1], self._service.instance.id)
            self._not_started.pop()

    async def _start(self, entry: QueueEntry, definition: PreparedDefinition) -> None:
        run = entry.run
        self._max_concurrent[run.workflow_id] = _max_concurrent(definition.workflow)
        await self._service.start(
            definition,
            _inputs(definition.workflow, run.inputs),
            workdir=str(run.extra.get("workdir", "/")),
            cause=run.cause,
            run_id=run.run_id,
            correlation_id=run.correlation_id,
            create=partial(self.queue.start, run.id),
        )
        self._publish("trigger_started", run)

    async def _hold(self, entry: QueueEntry, reason: str, error: Exception) -> None:
        why = f"{reason}: {error}"
        await self.queue.hold_entry(entry.run.id, self._service.instance.id, why)
        if why == entry.reason:  # it was tried again
            return
        self._publish("trigger_held", entry.run, reason=reason, message=str(error))
        await self._audit.record(
            "run.held",
            SYSTEM,
            outcome=reason,
            correlation_id=entry.run.correlation_id,
            run_id=entry.run.run_id,
            workflow_id=entry.run.workflow_id,
            details={"error": str(error)},
        )

    def _publish(self, kind: str, run: QueuedRun, **more: object) -> None:
        message: JsonObject = {
            "type": kind,
            "queueId": run.id,
            "triggerId": run.extra.get("triggerId", ""),
            "workflowId": run.workflow_id,
            "runId": run.run_id,
            "time": self._clock.now_ms(),
            "correlationId": run.correlation_id,
        }
        self._service.event_bus.publish({**message, **more})  # type: ignore[dict-item]


def queue_id(run_id: str) -> str:
    """Return the id of a run's entry in the queue."""
    return f"q-{run_id}"


def _inputs(workflow: JsonObject, given: JsonObject) -> JsonObject:
    """Return the inputs of a run; InputError if they do not fit the workflow as it is now."""
    specs = workflow.get("inputs")
    return resolve_inputs(specs, given) if isinstance(specs, list) else given  # type: ignore[arg-type]


def _max_concurrent(workflow: JsonObject) -> int:
    """Return how many runs of a workflow may be live at the same time."""
    limits = workflow.get("limits")
    limit = limits.get("maxConcurrentRuns") if isinstance(limits, dict) else None
    return limit if isinstance(limit, int) and limit > 0 else UNLIMITED
