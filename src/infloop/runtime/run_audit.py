"""Runs in the audit log: that each began, how it ended, and what became of a dead process's runs;
and where their children connected, or were not let.

No run waits for its entries. The first is written at once; what comes in meanwhile, and within a
moment, is written together after it. A log that cannot be written stops no run that is under way:
it is said what is missing in it.
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

GATHER_SECONDS = 0.02
"""How long entries wait for others after a write, so that many short runs are few writes."""

_log = logging.getLogger("infloop.audit")


class Run(Protocol):
    """What an entry says of the run it is about."""

    @property
    def id(self) -> str:
        """Its own id."""

    @property
    def workflow_id(self) -> str:
        """The id of its workflow."""

    @property
    def correlation_id(self) -> str:
        """The id of the request that caused it."""


class RunAudit:
    """Writes what becomes of this process's runs; without a log, nothing."""

    def __init__(self, audit: AuditLog | None, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._waiting: list[AuditEvent] = []
        self._writing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(
        self,
        event: EventName,
        run: Run,
        *,
        outcome: str = "",
        actor: Actor = SYSTEM,
        details: JsonObject | None = None,
    ) -> None:
        """Have an entry about a run written soon."""
        if self._audit is None:
            return
        self._waiting.append(
            audit_event(
                self._clock.now_ms(),
                event,
                actor,
                outcome=outcome,
                correlation_id=run.correlation_id,
                run_id=run.id,
                workflow_id=run.workflow_id,
                details=details,
            )
        )
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(self._audit))

    async def settle(self) -> None:
        """Return when everything that was noted is written."""
        self._hurry.set()
        try:
            while self._writing is not None:
                await asyncio.shield(self._writing)
        finally:
            self._hurry.clear()

    async def _write(self, audit: AuditLog) -> None:
        while self._waiting:
            facts, self._waiting = self._waiting, []
            try:
                await audit.record_all(facts)
            except AuditError as error:
                _log.error("%s", _missing(facts, error))
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._hurry.wait()
        self._writing = None


def _missing(facts: list[AuditEvent], error: AuditError) -> str:
    first, others = facts[0], len(facts) - 1
    more = f" (and {others} other entries)" if others else ""
    return f"the audit log lacks {first.event!r} of run {first.run_id!r}{more}: {error}"
