"""The audit log: what matters for trust, appended as it happens, each entry tied to the last.

`AuditLog` writes it, `audit_reading` reads it. What somebody is about to change is recorded first:
when `record` raises, it must not be done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from infloop.errors import AuditError
from infloop.model.audit import EVENTS, Actor, EventName, Fact, fact
from infloop.store.audit_files import AuditFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from infloop.model.values import JsonValue

DIRECTORY = "audit"
"""Where the log is, in the data directory."""

_MOST_AT_ONCE = 100


@dataclass(slots=True)
class _Waiting:
    fact: Fact
    routine: bool
    done: bool = False
    error: Exception | None = None


class AuditLog:
    """Appends to the log from one event loop; other processes may do the same.

    What is recorded while an entry is being made durable is written together after it.
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
        if self._closed:
            raise AuditError(f"{event!r} cannot be recorded: the audit log is closed")
        happened = fact(
            self._clock(),
            event,
            actor,
            outcome=outcome,
            correlation_id=correlation_id,
            run_id=run_id,
            workflow_id=workflow_id,
            details=details,
        )
        waiting = _Waiting(happened, EVENTS[event].routine)
        self._waiting.append(waiting)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._see_to, waiting)

    async def close(self) -> None:
        """Write what waits, make everything durable, and end."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._finish)
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

    def _see_to(self, waiting: _Waiting) -> None:
        """Write everything up to this entry, unless it was written with an earlier one."""
        while not waiting.done:
            self._write_some()
        if waiting.error is not None:
            raise AuditError(str(waiting.error)) from waiting.error

    def _write_some(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
        durable = not all(each.routine for each in batch)
        try:
            self._files.append([each.fact for each in batch], durable=durable)
        except Exception as error:  # noqa: BLE001  (whatever it was, none of them may count as done)
            for each in batch:
                each.error = error
        for each in batch:
            each.done = True

    def _finish(self) -> None:
        while self._waiting:  # those whose waiters were cancelled
            self._write_some()
        self._files.sync()
