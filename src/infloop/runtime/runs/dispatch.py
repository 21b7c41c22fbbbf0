"""Starts queued runs when there is capacity, in total and for each workflow.

- An entry leaves the queue in the transaction that creates its run. So a run starts exactly once,
  even if a process dies in between.
- What could not start now is refused before it is queued, with the reason. A process that would
  not run it itself (it has no capacity or lacks a label) checks only that the workflow is valid.
- An entry carries its definition. A process starts it without the workflow's file, and a later
  change of the file does not change it.
- An entry that cannot start when its turn comes is held with the reason, and tried again from time
  to time. It never disappears: it becomes a run, or somebody removes it.
- When the budget is used up, the queue is held. Its entries stay on disk until there is money again
  or another process takes them.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from infloop.engine.graph import decode_definition
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
from infloop.model.events import RunFinished
from infloop.model.inputs import resolve_inputs
from infloop.runtime.runs.admission import workspace_of
from infloop.runtime.runs.definitions import prepare
from infloop.store.interfaces.changes import QUEUE
from infloop.store.interfaces.queue import (
    Enqueued,
    QueuedRun,
    QueueFull,
    Replayed,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from infloop.model.clock import Clock
    from infloop.model.events import Cause, Recorded
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.definitions import PreparedDefinition
    from infloop.runtime.runs.service import RunService
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.queue import QueueEntry, RunQueue
    from infloop.store.interfaces.run_log import NewRun

    LoadDefinition = Callable[[str], Awaitable[PreparedDefinition]]
    """Reads a workflow as it is now; UsageError if there is none, WorkflowError if it is faulty."""

POLL_SECONDS = 1.0
"""How often the queue is looked into although nothing seems to be new."""

LOOK_SECONDS = 0.05
"""The pause after a look that found something, if another process then took it."""

RETRY_HELD_SECONDS = 15.0
"""How often entries that could not start are tried again."""

STOPPING_RETRY_SECONDS = 30

MAX_IN_TURN = 16
"""How many runs start one after the other before free capacity is counted again."""

MAX_PREPARED = 200
"""How many definitions are kept ready for the next entries that have them."""

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
    is_default_workdir: bool = False


class Capacity(msgspec.Struct, frozen=True):
    """How many runs are live at the same time, how many may wait, and which this process takes."""

    runs: int = 4
    queued: int = 100
    labels: frozenset[str] = frozenset()

    def fits(self, requires: Collection[str]) -> bool:
        """Whether this process runs what requires these labels."""
        return self.runs > 0 and self.labels.issuperset(requires)


class Dispatcher:
    """Takes from the queue what this process has capacity for.

    With `own_only` it takes only what was queued through it: a process that ends with its client
    must not take the runs of others. `workdir` is where runs of other machines work that named no
    directory.
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
        workdir: str = "/",
    ) -> None:
        self._service = service
        self.queue = queue
        self._clock = clock
        self._audit = audit
        self._load = load
        self.capacity = capacity
        self._workdir = workdir
        self._prepared: dict[str, PreparedDefinition] = {}
        self._wake = asyncio.Event()
        self._held = ""
        self._next_look = 0.0
        self._has_failed = False
        self._closed = False
        self._checks: dict[tuple[str, str, Cause], asyncio.Task[PreparedDefinition]] = {}
        self._not_started: list[str] = []
        self._own: set[str] | None = set() if own_only else None
        service.on_end(self._wake.set)

    # -- the queue ---------------------------------------------------------------------------

    async def put(self, request: RunRequest) -> Enqueued | QueueFull | Replayed:
        """Queue a run that could start now; it is durable when this returns.

        See `check` for the errors.
        """
        definition = await self.check(request)
        self._remember(definition.hash, definition)
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
            requires=requires_of(definition.workflow),
            max_concurrent=_max_concurrent(definition.workflow),
            definition=definition.hash,
            extra={
                "workdir": request.workdir,
                "isDefaultWorkdir": request.is_default_workdir,
                "machine": self._machine,
                "triggerId": request.trigger_id,
                "workflowName": request.workflow_name,
            },
        )
        added = await self.queue.put(run, limit=self.capacity.queued, definition=definition.data)
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

    async def check(self, request: RunRequest) -> PreparedDefinition:
        """Return what a run will execute; raise if it could not be queued and start now.

        UsageError, WorkflowError, GuardError or StoreError say why it could not start; Overloaded,
        that this process stops. Without a budget it can be queued: it waits for money.
        """
        definition = await self._check_start(request)
        if self._closed:
            raise Overloaded(
                "the server is stopping and takes no more runs; try again when it is back",
                "stopping",
                STOPPING_RETRY_SECONDS,
            )
        return definition

    async def _check_start(self, request: RunRequest) -> PreparedDefinition:
        """Check whether a run could start; equal requests at the same time share a check."""
        key = request.workflow_id, request.workdir, request.cause
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = asyncio.create_task(self._check_now(*key))
            check.add_done_callback(lambda _: self._checks.pop(key))
        return await asyncio.shield(check)

    async def _check_now(self, workflow_id: str, workdir: str, cause: Cause) -> PreparedDefinition:
        definition = await self._load(workflow_id)
        if self.capacity.fits(requires_of(definition.workflow)):
            await self._service.check_start(definition, workdir=workdir, cause=cause)
        return definition

    def close(self) -> None:
        """Queue and start no more runs, because the process stops."""
        self._closed = True

    def wake(self) -> None:
        """Look into the queue now."""
        self._wake.set()

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
        last_retry = -RETRY_HELD_SECONDS
        while True:
            self._wake.clear()
            with suppress(StoreError):  # tried again: a full disk or a lock can be temporary
                await self._requeue_not_started()
                if loop.time() - last_retry >= RETRY_HELD_SECONDS:
                    await self.queue.retry_held(only=self._own)
                    last_retry = loop.time()
                while self._free_capacity() and await self._has_budget() and await self._fill():
                    pass
            await self._wait_for_more()

    async def _wait_for_more(self) -> None:
        """Return when there may be something to start, or after `POLL_SECONDS`.

        What another process added is seen at once. A process that always comes too late for it
        looks every `LOOK_SECONDS`.
        """
        if not self._free_capacity():  # a run that ends wakes it
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            return
        loop, changes = asyncio.get_running_loop(), self._service.store.changes
        deadline = loop.time() + POLL_SECONDS
        woken = asyncio.create_task(self._wake.wait())
        try:
            while not woken.done() and (left := deadline - loop.time()) > 0:
                if (pause := self._next_look - loop.time()) > 0:
                    await asyncio.wait((woken,), timeout=pause)
                    continue
                version = changes.version(QUEUE)
                if await self._has_takeable():
                    self._next_look = loop.time() + LOOK_SECONDS
                    return
                changed = asyncio.create_task(changes.wait(QUEUE, version, left))
                try:
                    await asyncio.wait((woken, changed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
        finally:
            woken.cancel()

    async def _has_takeable(self) -> bool:
        """Say whether the queue has an entry for this process, and it can take one."""
        if self._held or self._has_failed or not self._free_capacity():
            return False
        with suppress(StoreError):
            return await self.queue.has_takeable(labels=self.capacity.labels, only=self._own)
        return False

    def _free_capacity(self) -> int:
        """Return how many runs this process may take now."""
        return max(0, self.capacity.runs - len(self._service.live())) if self._may_take() else 0

    def _may_take(self) -> bool:
        # Others may take a process that is late for dead; it must not take anything meanwhile.
        return not self._closed and not self._service.instance.is_late()

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
        free = self._free_capacity()
        if not free:
            return False
        taken = await self.queue.take(
            self._service.instance.id, free, labels=self.capacity.labels, only=self._own
        )
        go_on = await asyncio.gather(*map(self._start_in_turn, taken))
        await self._requeue_not_started()
        if taken:
            self._next_look = 0.0
        self._has_failed = not all(go_on)
        return bool(taken) and all(go_on)

    async def _definition(self, run: QueuedRun) -> PreparedDefinition:
        """Return the definition of an entry: what was accepted, wherever its file is now."""
        name = run.definition
        if not name:  # an entry of an earlier version of infloop
            return await self._load(run.workflow_id)
        if name not in self._prepared:
            data = await self.queue.definition(name)
            if name not in self._prepared:  # another entry that starts now may have it
                self._remember(name, prepare(decode_definition(data)))
        return self._prepared[name]

    def _remember(self, name: str, definition: PreparedDefinition) -> None:
        if len(self._prepared) >= MAX_PREPARED:
            self._prepared.clear()
        self._prepared[name] = definition

    async def _start_in_turn(self, entry: QueueEntry) -> bool:
        """Start a run, and those that are handed out in its place while runs end at once.

        Say whether other runs may start.
        """
        handed, go_on, left = [entry], True, MAX_IN_TURN
        while handed and go_on:
            left -= 1
            go_on = await self._start_or_requeue(handed.pop(), handed if left else None)
        self._not_started += [each.run.id for each in handed]
        return go_on

    async def _start_or_requeue(self, entry: QueueEntry, handed: list[QueueEntry] | None) -> bool:
        """Start, hold or requeue a run; say whether other runs may start."""
        try:
            started = await self._start_or_hold(entry, handed)
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

    async def _start_or_hold(self, entry: QueueEntry, handed: list[QueueEntry] | None) -> bool:
        """Start a run, or hold it with the reason; say whether it started."""
        try:
            await self._start(entry, await self._definition(entry.run), handed)
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

    async def _start(
        self,
        entry: QueueEntry,
        definition: PreparedDefinition,
        handed: list[QueueEntry] | None,
    ) -> None:
        run = entry.run
        await self._service.start(
            definition,
            _inputs(definition.workflow, run.inputs),
            workdir="" if workspace_of(definition.workflow) else await self._directory(run),
            cause=run.cause,
            run_id=run.run_id,
            correlation_id=run.correlation_id,
            create=partial(self._create, run.id, handed),
        )
        self._publish("trigger_started", run)

    async def _create(
        self,
        entry_id: str,
        handed: list[QueueEntry] | None,
        run: NewRun,
        first: Recorded,
        rest: Sequence[Recorded],
        *,
        scope: JsonObject | None,
    ) -> int:
        """Make a run durable; add to `handed` what was taken in its place, if it has ended."""
        has_ended = bool(rest) and isinstance(rest[-1].event, RunFinished)
        if handed is None or not has_ended or not self._may_take():
            return await self.queue.start(entry_id, run, first, rest, scope=scope)
        epoch, entry = await self.queue.start_ended(
            entry_id, run, first, rest, scope=scope, labels=self.capacity.labels, only=self._own
        )
        if entry is not None:
            handed.append(entry)
        return epoch

    @property
    def _machine(self) -> str:
        row = self._service.instance.row
        return f"{row.host} {row.boot_id}"

    async def _directory(self, run: QueuedRun) -> str:
        """Return where a run works; GuardError if this machine has no such directory.

        What was accepted on this machine works where it was accepted to work. A run of another
        machine works in the directory that it named, or without one where this process works.
        """
        named = str(run.extra.get("workdir", "/"))
        if run.extra.get("machine", self._machine) == self._machine:
            return named
        if run.extra.get("isDefaultWorkdir"):
            return self._workdir
        await self._service.check_directory(named)
        return named

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


def requires_of(workflow: JsonObject) -> tuple[str, ...]:
    """Return the labels that a process must have to run a workflow."""
    requires = workflow.get("requires")
    return tuple(map(str, requires)) if isinstance(requires, list | tuple) else ()


def _inputs(workflow: JsonObject, given: JsonObject) -> JsonObject:
    """Return the inputs of a run; InputError if they do not fit the workflow as it is now."""
    specs = workflow.get("inputs")
    return resolve_inputs(specs, given) if isinstance(specs, list) else given  # type: ignore[arg-type]


def _max_concurrent(workflow: JsonObject) -> int:
    """Return how many runs of a workflow may be live at the same time; 0 means no limit."""
    limits = workflow.get("limits")
    limit = limits.get("maxConcurrentRuns") if isinstance(limits, dict) else None
    return limit if isinstance(limit, int) and limit > 0 else 0
