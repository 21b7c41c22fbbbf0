"""Audit logs with a clock that tests set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from infloop.runtime.clock import SetClock
from infloop.store.audit.log import AuditLog


@asynccontextmanager
async def open_audit_log(
    folder: Path, *, max_bytes: int = 1 << 20, max_files: int = 5, clock: SetClock | None = None
) -> AsyncIterator[AuditLog]:
    now = clock or SetClock()
    async with AuditLog(folder, now.now_ms, max_bytes=max_bytes, max_files=max_files) as log:
        yield log
