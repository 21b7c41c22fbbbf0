"""Opens the store and the audit log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.store import Store


@asynccontextmanager
async def open_store(chosen: Settings) -> AsyncIterator[Store]:
    """Open the store without owning any run."""
    from infloop.runtime.clock import SystemClock
    from infloop.store import opening

    async with await opening.open_store(chosen.data_dir, SystemClock().now_ms) as store:
        yield store


def audit_dir(chosen: Settings) -> Path:
    """Return where the audit log is."""
    from infloop.store.audit.log import DIRECTORY

    return chosen.data_dir / DIRECTORY


def make_audit(chosen: Settings) -> AuditLog:
    """Return the audit log for writing; its directory is made with its first entry."""
    from infloop.runtime.clock import SystemClock
    from infloop.store.audit.log import AuditLog

    return AuditLog(
        audit_dir(chosen),
        SystemClock().now_ms,
        max_bytes=chosen.audit_max_bytes,
        max_files=chosen.audit_max_files,
    )


@asynccontextmanager
async def open_audit(chosen: Settings) -> AsyncIterator[AuditLog]:
    """Open the audit log for writing, and close it again."""
    async with make_audit(chosen) as log:
        yield log
