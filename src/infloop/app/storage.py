"""Opens the journal and the audit log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.store.audit.log import AuditLog
    from infloop.store.base import Journal
    from infloop.store.instances import Instances
    from infloop.store.queue import Queue


@dataclass(frozen=True, slots=True)
class History:
    """What has been recorded, for commands that only read or ask."""

    journal: Journal
    instances: Instances
    queue: Queue


@asynccontextmanager
async def open_history(chosen: Settings) -> AsyncIterator[History]:
    """Open the journal without owning any run."""
    from infloop.runtime.clock import SystemClock
    from infloop.store.instances import Instances
    from infloop.store.sqlite.journal import open_journal

    journal = await open_journal(chosen.data_dir)
    try:
        instances = Instances(journal, chosen.data_dir, SystemClock().now_ms)
        yield History(journal, instances, journal.queue)
    finally:
        await journal.close()


def audit_dir(chosen: Settings) -> Path:
    """Return where the audit log is."""
    from infloop.store.audit.log import DIRECTORY

    return chosen.data_dir / DIRECTORY


@asynccontextmanager
async def open_audit(chosen: Settings) -> AsyncIterator[AuditLog]:
    """Open the audit log for writing; it is made with its first entry."""
    from infloop.runtime.clock import SystemClock
    from infloop.store.audit.log import AuditLog

    async with AuditLog(
        audit_dir(chosen),
        SystemClock().now_ms,
        max_bytes=chosen.audit_max_bytes,
        max_files=chosen.audit_max_files,
    ) as log:
        yield log
