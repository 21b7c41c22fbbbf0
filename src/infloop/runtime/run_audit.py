"""Writes starts, ends and recoveries of runs, and egress decisions, to the audit log.

- A run that cannot be recorded does not begin.
- No live run waits for its entries. The first entry is written at once. Entries that arrive
  meanwhile, or shortly after, are written together.
- A log that cannot be written stops no live run. The missing entries are logged as errors.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from infloop.errors import AuditError
from infloop.model.audit import SYSTEM, Actor, audit_event

if TYPE_CHECKING:
    from infloop.model.audit import AuditEvent, EventName
    from infloop.model.clock import Clock
    from infloop.model.values import JsonObject
    from infloop.store.audit.log import AuditLog

BATCH_SECONDS = 0.02
"""How long entries are collected after a write, so that many short runs cost few writes."""

_log = logging.getLogger("infloop.audit")


class AuditedRun(Protocol):
    """What an entry says about its run."""

    @property
    def id(self) -> str: ...

    @property
    def workflow_id(self) -> str: ...

    @property
    def correlation_id(self) -> str:
        """The id of the request that caused the run."""


class RunAudit:
    """Writes entries about the runs of this process; without a log, none."""

    def __init__(self, audit: AuditLog | None, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._waiting: list[AuditEvent] = []
        self._writing: asyncio.Task[None] | None = None
        self._settling = asyncio.Event()

    def note(
        self,
        event: EventName,
        run: AuditedRun,
        *,
        outcome: str = "",
        actor: Actor = SYSTEM,
        details: JsonObject | None = None,
    ) -> None:
        """Write an entry about a run soon."""
        if self._audit is None:
            return
        self._waiting.append(self._entry(event, run, outcome, actor, details))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(self._audit))

    async def record(
        self, event: EventName, run: AuditedRun, *, outcome: str = "", actor: Actor = SYSTEM
    ) -> None:
        """Write an entry about a run before it begins or goes on; raise AuditError if it cannot."""
        if self._audit is not None:
            await self._audit.record_all([self._entry(event, run, outcome, actor)])

    def _entry(
        self,
        event: EventName,
        run: AuditedRun,
        outcome: str,
        actor: Actor,
        details: JsonObject | None = None,
    ) -> AuditEvent:
        return audit_event(
            self._clock.now_ms(),
            event,
            actor,
            outcome=outcome,
            correlation_id=run.correlation_id,
            run_id=run.id,
            workflow_id=run.workflow_id,
            details=details,
        )

    async def settle(self) -> None:
        """Return when all entries so far are written."""
        self._settling.set()
        try:
            while self._writing is not None:
                await asyncio.shield(self._writing)
        finally:
            self._settling.clear()

    async def _write(self, audit: AuditLog) -> None:
        while self._waiting:
            entries, self._waiting = self._waiting, []
            try:
                await audit.record_all(entries)
            except AuditError as error:
                _log.error("%s", _missing(entries, error))
            with suppress(TimeoutError):
                async with asyncio.timeout(BATCH_SECONDS):
                    await self._settling.wait()
        self._writing = None


def _missing(entries: list[AuditEvent], error: AuditError) -> str:
    first, others = entries[0], len(entries) - 1
    more = f" (and {others} other entries)" if others else ""
    return f"the audit log lacks {first.event!r} of run {first.run_id!r}{more}: {error}"
