"""The audit log: what matters for trust, appended as it happens, each entry tied to the last.

`AuditLog` writes it, `audit_reading` reads it. What somebody is about to change is recorded first:
when `record` raises, it must not be done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Self

from infloop.errors import AuditError
from infloop.model.audit import EVENTS, Actor, AuditEvent, EventName, audit_event
from infloop.store.audit.files import AuditFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from infloop.model.values import JsonValue

DIRECTORY = "audit"
"""Where the log is, in the data directory."""

_MOST_AT_ONCE = 100
_SLOW_S = 0.01
_SLOW_FOR_S = 1.0


class _Waiting(NamedTuple):
    facts: Sequence[AuditEvent]
    written: asyncio.Future[None]


class AuditLog:
    """Appends to the log from one event loop; other processes may do the same.

    What is recorded in one turn of the loop is written together, and so is what is recorded while
    that is being made durable.
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
        self._slow_until = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
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
        """Write an entry; return when it is durable, or written if its event is routine.

        Raises AuditError when it cannot be written. Secrets are withheld by the names of details.
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
        """Write what waits, make everything durable, and end."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writing is not None:
                await self._writing
            await asyncio.get_running_loop().run_in_executor(self._thread, self._files.sync)
        finally:
            self._thread.shutdown(wait=False)

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
        """Write what waits, also for those who do not wait for it any more."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
            facts = [each for waiting in batch for each in waiting.facts]
            error = None
            try:
                if not self._written_here(facts, loop.time):
                    await loop.run_in_executor(self._thread, self._append, facts)
            except Exception as raised:  # noqa: BLE001  (whatever it was, none of them is written)
                error = str(raised)
            for each in batch:
                if each.written.done():
                    continue
                if error is None:
                    each.written.set_result(None)
                else:
                    each.written.set_exception(AuditError(error))
        self._writing = None

    def _written_here(self, facts: list[AuditEvent], now: Callable[[], float]) -> bool:
        """Write routine entries in the event loop's thread, if nothing has to be waited for.

        To change threads takes longer than to write them; a slow disk must not hold up the loop.
        """
        began = now()
        if began < self._slow_until or not all(map(_is_routine, facts)):
            return False
        written = self._files.append_at_once(facts)
        if now() - began > _SLOW_S:
            self._slow_until = now() + _SLOW_FOR_S
        return written

    def _append(self, facts: list[AuditEvent]) -> None:
        self._files.append(facts, durable=not all(map(_is_routine, facts)))


def _is_routine(happened: AuditEvent) -> bool:
    return EVENTS[happened.event].routine  # type: ignore[index]  # `audit_event` made sure that it is one
