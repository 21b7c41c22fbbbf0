"""Lets queued runs begin when there is room: so many at once, and so many of one workflow.

An entry is taken, and becomes a run in the same transaction that ends it in the queue; so it begins
exactly once, whoever dies. What cannot begin is dropped and says why. When all money is spent the
queue is held: what waits stays on disk, and goes on with more money or another process.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import BudgetError, Fenced, NotFound, StoreError, UsageError, WorkflowError
from infloop.model.audit import SYSTEM
from infloop.store.interfaces.queue import Enqueued, QueuedRun, QueueFull, requeue_from_dead_owners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infloop.engine.graph import Definition
    from infloop.model.clock import Clock
    from infloop.model.events import Cause
    from infloop.model.values import JsonObject
    from infloop.runtime.runs.service import RunService
    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.queue import QueueEntry, RunQueue
    from infloop.store.interfaces.run_log import RunRow

    Load = Callable[[str], Awaitable[Definition]]
    """Reads a workflow as it is now; raises UsageError when it is gone, WorkflowError when bad."""

LOOK_SECONDS = 1.0
"""How long it takes at most until what another process did is seen."""

TIDY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that somebody wants."""

    workflow_id: str
    inputs: JsonObject
    cause: Cause
    workdir: str
    correlation_id: str
    trigger_id: str = ""
    priority: int = 0
    key: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """How much goes on at once, and how much may wait."""

    runs: int = 4
    queued: int = 100


class Dispatcher:
    """Takes from the queue what this process has room for.

    With `own_only` it takes nothing but what was put in through it: a process that ends with its
    client is no place for the runs of others.
    """

    def __init__(
        self,
        service: RunService,
        queue: RunQueue,
        clock: Clock,
        audit: AuditLog,
        load: Load,
        room: Room,
        *,
        own_only: bool = False,
    ) -> None:
        self._service = service
        self.queue = queue
        self._clock = clock
        self._audit = audit
        self._load = load
        self._room = room
        self._most: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._held = ""
        self._unbegun: list[str] = []
        self._own: set[str] | None = set() if own_only else None
        service.on_end(self._wake.set)

    # -- asking ------------------------------------------------------------------------------

    async def put(self, asked: Asked) -> Enqueued | QueueFull:
        """Let a run wait for its turn; it is durable when this returns."""
        run_id = str(uuid.uuid4())
        run = QueuedRun(
            queue_id(run_id),
            run_id,
            asked.workflow_id,
            asked.inputs,
            asked.correlation_id,
            self._clock.now_ms(),
            asked.cause,
            asked.priority,
            asked.key,
            {"workdir": asked.workdir, "triggerId": asked.trigger_id},
        )
        put = await self.queue.put(run, limit=self._room.queued)
        if isinstance(put, Enqueued) and not put.repeated:
            if self._own is not None:
                self._own.add(put.id)
            self._say(
                "trigger_enqueued",
                run,
                inputs=run.inputs,
                position=put.position,
                receivedAt=run.queued_at,
            )
            self._wake.set()
        return put

    async def remove(self, entry_id: str) -> bool:
        """Take a waiting run out of the queue; say whether it was waiting."""
        entry = await self.queue.entry(entry_id)
        removed = await self.queue.remove(entry_id)
        if removed:
            self._say("trigger_removed", entry.run, reason="user-cancelled")
        return removed

    async def find(self, run_id: str) -> RunRow | QueueEntry:
        """Return a run that exists, or its place in the queue; raise NotFound if there is neither.

        It may begin between two looks, so the journal is asked again.
        """
        run_log = self._service.store.run_log
        try:
            return await run_log.run(run_id)
        except NotFound:
            entry = await self.queue.entry(queue_id(run_id))
            return entry if entry.state != "started" else await run_log.run(run_id)

    @property
    def held(self) -> str:
        """Why nothing is taken from the queue at the moment, or nothing."""
        return self._held

    # -- beginning ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Begin what waits, until cancelled."""
        loop = asyncio.get_running_loop()
        tidied = -TIDY_SECONDS
        while True:
            self._wake.clear()
            with suppress(StoreError):  # the disk may have room again, the lock be free
                await self._give_back()
                if loop.time() - tidied >= TIDY_SECONDS:
                    await requeue_from_dead_owners(self.queue, self._service.store.liveness)
                    tidied = loop.time()
                while await self._may_spend() and await self._fill():
                    pass
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def _may_spend(self) -> bool:
        """Hold the queue while all money is spent, and let it go on when there is some."""
        owner = self._service.instance.id
        try:
            await self._service.refuse_if_spent()
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
        """Begin all that there is room for; say whether there may be more."""
        live = self._service.live()
        free = self._room.runs - len(live)
        if free < 1:
            return False
        counts = Counter(live.values())
        # How many there may be of a workflow is known once one of them has been read.
        slots = {name: most - counts[name] for name, most in self._most.items()}
        owner = self._service.instance.id
        taken = await self.queue.take(owner, free, slots=slots, only=self._own)
        names = {entry.run.workflow_id for entry in taken}
        # What begins together is read once.
        definitions = {name: asyncio.ensure_future(self._load(name)) for name in names}
        began = await asyncio.gather(
            *(self._begin_or_settle(each, definitions[each.run.workflow_id]) for each in taken)
        )
        await self._give_back()
        return bool(taken) and all(began)

    async def _begin_or_settle(self, entry: QueueEntry, definition: Awaitable[Definition]) -> bool:
        """Begin a run, or see to it that it does not wait in vain; say whether others may begin."""
        try:
            await self._begin_or_drop(entry, definition)
        except Fenced:
            pass  # another process saw us as dead and took it
        except (BudgetError, StoreError):
            self._unbegun.append(entry.run.id)
            return False
        if self._own is not None:
            self._own.discard(entry.run.id)
        return True

    async def _begin_or_drop(self, entry: QueueEntry, definition: Awaitable[Definition]) -> None:
        try:
            await self._begin(entry, await definition)
        except (BudgetError, StoreError):
            raise
        except UsageError as error:
            await self._drop(entry, "workflow-deleted", error)
        except WorkflowError as error:
            await self._drop(entry, "workflow-refused", error)
        except Exception as error:  # noqa: BLE001  (one run that cannot begin holds up no other)
            await self._drop(entry, "engine-start-failed", error)

    async def _give_back(self) -> None:
        """Let wait again what was taken and could not begin; what fails is tried again."""
        while self._unbegun:
            with suppress(Fenced):
                await self.queue.requeue(self._unbegun[-1], self._service.instance.id)
            self._unbegun.pop()

    async def _begin(self, entry: QueueEntry, definition: Definition) -> None:
        run = entry.run
        self._most[run.workflow_id] = _most_at_once(definition)
        await self._service.start(
            definition,
            run.inputs,
            workdir=str(run.extra.get("workdir", "/")),
            cause=run.cause,
            run_id=run.run_id,
            correlation_id=run.correlation_id,
            create=partial(self.queue.start, run.id),
        )
        self._say("trigger_started", run)

    async def _drop(self, entry: QueueEntry, reason: str, error: Exception) -> None:
        await self.queue.drop(entry.run.id, self._service.instance.id, f"{reason}: {error}")
        self._say("trigger_dropped", entry.run, reason=reason, message=str(error))
        await self._audit.record(
            "queue.dropped",
            SYSTEM,
            outcome=reason,
            correlation_id=entry.run.correlation_id,
            run_id=entry.run.run_id,
            workflow_id=entry.run.workflow_id,
            details={"error": str(error)},
        )

    # -- telling -----------------------------------------------------------------------------

    def _say(self, kind: str, run: QueuedRun, **more: object) -> None:
        said: JsonObject = {
            "type": kind,
            "queueId": run.id,
            "triggerId": run.extra.get("triggerId", ""),
            "workflowId": run.workflow_id,
            "runId": run.run_id,
            "time": self._clock.now_ms(),
            "correlationId": run.correlation_id,
        }
        self._service.news.publish({**said, **more})  # type: ignore[dict-item]


def queue_id(run_id: str) -> str:
    """Return the id that a run has while it waits."""
    return f"q-{run_id}"


def _most_at_once(definition: Definition) -> int:
    """Return how many runs of a workflow may go on at once; without a limit, a great many."""
    limits = definition.workflows[definition.root].get("limits")
    asked = limits.get("maxConcurrentRuns") if isinstance(limits, dict) else None
    return asked if isinstance(asked, int) and asked > 0 else 1_000_000
