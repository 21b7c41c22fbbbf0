"""Opens the store and the audit log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import SettingsError
from infloop.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.store.audit.log import AuditLog
    from infloop.store.interfaces.store import Store


SESSIONS_DIR = "sessions"


def make_directory(folder: Path) -> None:
    """Make the data directory, or a folder in it, for us alone. Raises SettingsError."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(
            f"{str(folder)!r} cannot be made: {error.strerror}; set INFLOOP_DATA_DIR to a "
            "directory of yours"
        ) from None


def token_file(chosen: Settings) -> Path:
    """Return where the token is that the server makes for itself."""
    return chosen.data_dir / "api-token"


@asynccontextmanager
async def open_store(chosen: Settings) -> AsyncIterator[Store]:
    """Open the store without owning any run."""
    from infloop.runtime.clock import SystemClock
    from infloop.store import opening
    from infloop.store.data_directory import refuse_shared

    refuse_shared(chosen.data_dir)
    opened = await opening.open_store(
        chosen.data_dir,
        SystemClock().now_ms,
        chosen.database,
        lost_after_ms=chosen.worker_timeout_ms,
    )
    async with opened as store:
        yield store


@asynccontextmanager
async def open_read_only(chosen: Settings) -> AsyncIterator[Store]:
    """Open the store in the data directory for reading alone, without an event loop."""
    from infloop.runtime.clock import SystemClock
    from infloop.store import opening
    from infloop.store.data_directory import refuse_shared

    refuse_shared(chosen.data_dir)
    async with opening.open_read_only(chosen.data_dir, SystemClock().now_ms) as store:
        yield store


async def why_no_store(chosen: Settings) -> str:
    """Return why the store cannot be used; empty if it can or is new."""
    from infloop.store.opening import why_unreadable

    return await why_unreadable(chosen.data_dir, chosen.database)


def audit_dir(chosen: Settings) -> Path:
    """Return where the audit log is."""
    from infloop.store.audit.log import DIRECTORY

    return chosen.data_dir / DIRECTORY


def make_audit(chosen: Settings) -> AuditLog:
    """Return the audit log for writing; its directory is made with its first entry."""
    from infloop.runtime.clock import SystemClock
    from infloop.store.audit.log import AuditLog
    from infloop.store.data_directory import refuse_shared

    refuse_shared(chosen.data_dir)
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
