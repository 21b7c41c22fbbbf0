"""Appends to the audit log.

Record a change before making it: when `record` raises, the change must not be made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Self

from infloop.errors import AuditError
from infloop.lowlevel.worker_thread import WorkerThread
from infloop.model.audit import EVENTS, Actor, AuditEvent, EventName, audit_event
from infloop.store.audit.files import AuditFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from infloop.model.values import JsonValue

DIRECTORY = "audit"
"""The log's directory inside the data directory."""

_BATCH_SIZE = 100
_SLOW_SECONDS = 0.01
_SUSPENDED_SECONDS = 1.0


class _Waiting(NamedTuple):
    facts: Sequence[AuditEvent]
    written: asyncio.Future[None]


class AuditLog:
    """Appends to the log from one event loop; other processes may do the same.

    Entries that are recorded in one iteration of the loop, or while others are being made durable,
    are written together.
    """

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], int],
        *,
        max_bytes: int,
        max_files: int,
    ) -> None:
        self._files = AuditFiles(directory, max_bytes=max_bytes, max_files=max_files)
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._suspended_until = 0.0
        self._thread = WorkerThread("audit-writer")
        self._closed = False

    async def record(
        self,
        event: EventName,
        actor: Actor,
        *,
        outcome: str = "",
        correlation_id: str = "",
        run_id: str = "",
        workflow_id: str = "",
        details: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """Write an entry; return when it is durable, or merely written if its event is routine.

        Raises AuditError. Details whose names suggest a secret are redacted.
        """
        happened = audit_event(
            self._clock(),
            event,
            actor,
            outcome=outcome,
            correlation_id=correlation_id,
            run_id=run_id,
            workflow_id=workflow_id,
            details=details,
        )
        await self.record_all([happened])

    async def record_all(self, facts: Sequence[AuditEvent]) -> None:
        """Write entries as `record` does, together."""
        if self._closed:
            raise AuditError(f"{facts[0].event!r} cannot be recorded: the audit log is closed")
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(facts, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await written

    async def close(self) -> None:
        """Write pending entries and make everything durable."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writing is not None:
                await self._writing
            await self._thread.run(self._files.sync)
        finally:
            self._thread.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _write(self) -> None:
        """Write pending entries, also those whose callers were cancelled."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH_SIZE))]
            facts = [each for waiting in batch for each in waiting.facts]
            error = None
            try:
                if not self._write_inline(facts):
                    await self._thread.run(partial(self._append, facts))
            except Exception as raised:  # noqa: BLE001  (none of them was written)
                error = str(raised)
            for each in batch:
                if each.written.done():
                    continue
                if error is None:
                    each.written.set_result(None)
                else:
                    each.written.set_exception(AuditError(error))
        self._writing = None

    def _write_inline(self, facts: list[AuditEvent]) -> bool:
        """Write routine entries on the event loop's thread, if that takes no waiting.

        Switching threads takes longer than writing them. A slow disk suspends this for a while.
        """
        began = monotonic()  # the time of uvloop stands still during an iteration
        if began < self._suspended_until or not all(map(_is_routine, facts)):
            return False
        written = self._files.append_without_waiting(facts)
        ended = monotonic()
        if ended - began > _SLOW_SECONDS:
            self._suspended_until = ended + _SUSPENDED_SECONDS
        return written

    def _append(self, facts: list[AuditEvent]) -> None:
        self._files.append(facts, durable=not all(map(_is_routine, facts)))


def _is_routine(happened: AuditEvent) -> bool:
    return EVENTS[happened.event].routine  # type: ignore[index]  # `audit_event` made sure that it is one
