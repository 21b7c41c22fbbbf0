"""Runs that wait for their turn: add, list, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from infloop.application.models import Model
from infloop.application.workers import Workers
from infloop.errors import NotFound, Overloaded
from infloop.model.events import Cause
from infloop.model.values import JsonObject
from infloop.store.interfaces.queue import QueueFull, Replayed

if TYPE_CHECKING:
    from infloop.application.caller import Caller
    from infloop.application.resources import Resources
    from infloop.runtime.runs.dispatch import Dispatcher, RunRequest
    from infloop.store.interfaces.queue import Enqueued, QueueEntry


class QueueItem(Model, kw_only=True):
    """A run in the queue; position 1 is next.

    `held` says why this run cannot start. It has position 0, and is tried again until it starts or
    somebody removes it. `waitsFor` says why no server or worker takes it: none has the labels that
    it `requires`.
    """

    queue_id: str
    run_id: str
    workflow_id: str
    workflow_name: str
    trigger_id: str
    cause: Cause
    inputs: JsonObject
    received_at: int
    position: int
    state: Literal["waiting", "taken", "started", "removed", "dropped"]
    priority: int
    held: str
    requires: list[str]
    waits_for: str


class QueueList(Model, kw_only=True):
    """The waiting runs in order; `held` says why none is started at the moment."""

    size: int
    head: QueueItem | None
    items: list[QueueItem]
    held: str

    def without_credentials(self) -> QueueList:
        """Return the list without what a stranger must not learn: a webhook's id is its address."""
        items = [replace(item, trigger_id=_public(item), inputs={}) for item in self.items]
        return QueueList(
            size=self.size, head=items[0] if items else None, items=items, held=self.held
        )


def _public(item: QueueItem) -> str:
    return item.trigger_id if item.cause.kind == "mcp" else ""


class RunQueue:
    """The queue that all processes of a data directory or a database share."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def all(self, limit: int | None = None) -> QueueList:
        queue, dispatcher = self._resources.store.queue, self._resources.dispatcher
        entries = await (queue.entries(limit=limit) if limit else queue.entries())
        reasons = await Workers(self._resources).why_waiting(entries)
        items = [_item(entry, reasons.get(entry.run.id, "")) for entry in entries]
        return QueueList(
            size=await queue.count(),
            head=items[0] if items else None,
            items=items,
            held=dispatcher.held if dispatcher else "",
        )

    async def check(self, wanted: RunRequest) -> None:
        """Raise if a run could not start now, or if the queue is full.

        See `Dispatcher.check` for the errors. A repeated request gets its answer from a full queue.
        """
        dispatcher = self._dispatcher()
        await dispatcher.check(wanted)
        if not wanted.key and await dispatcher.queue.count() >= dispatcher.capacity.queued:
            raise _full(dispatcher.capacity.queued)

    async def add(self, wanted: RunRequest) -> Enqueued:
        """Add a run; it is durable when this returns.

        Raises Overloaded when the queue is full, and what `check` raises.
        """
        added = await self._dispatcher().put(wanted)
        if isinstance(added, QueueFull):
            raise _full(added.limit)
        assert not isinstance(added, Replayed), "only webhooks have fingerprints"
        return added

    def _dispatcher(self) -> Dispatcher:
        dispatcher = self._resources.dispatcher
        assert dispatcher is not None, "only a process with a dispatcher adds to the queue"
        return dispatcher

    async def remove(self, queue_id: str, caller: Caller) -> QueueItem:
        """Take a waiting run out of the queue, so that it never begins."""
        try:
            entry = await self._resources.store.queue.entry(queue_id)
        except NotFound as error:
            raise NotFound(str(error), "not-in-queue") from None
        await self._resources.audit().record(
            "queue.removed",
            caller.actor,
            correlation_id=caller.correlation_id,
            run_id=entry.run.run_id,
            workflow_id=entry.run.workflow_id,
        )
        dispatcher = self._resources.dispatcher
        remove = dispatcher.remove if dispatcher else self._resources.store.queue.remove
        if not await remove(queue_id):
            raise NotFound(f"{queue_id!r} does not wait: it is {entry.state}", "not-in-queue")
        return _item(entry)


def _full(limit: int) -> Overloaded:
    message = f"{limit} runs wait already; try again when some have begun"
    return Overloaded(message, "queue-full", retry_after_s=30)


def _item(entry: QueueEntry, waits_for: str = "") -> QueueItem:
    run = entry.run
    return QueueItem(
        queue_id=run.id,
        run_id=run.run_id,
        workflow_id=run.workflow_id,
        workflow_name=str(run.extra.get("workflowName") or run.workflow_id),
        trigger_id=str(run.extra.get("triggerId", "")),
        cause=run.cause,
        inputs=run.inputs,
        received_at=run.queued_at,
        position=entry.position,
        state=entry.state,
        priority=run.priority,
        held=entry.reason if entry.held else "",
        requires=list(run.requires),
        waits_for=waits_for,
    )
