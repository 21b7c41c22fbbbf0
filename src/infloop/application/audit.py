"""The audit log: read it, follow it, verify it; and record what happens to the server itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from infloop.application.models import Model
from infloop.model.audit import SYSTEM, AuditEntry
from infloop.store.audit.reading import Follower, newest, verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from infloop.application.resources import FileResources
    from infloop.model.audit import AuditFilter
    from infloop.model.values import JsonObject

POLL_SECONDS = 0.2


class AuditPage(Model, kw_only=True):
    """Entries, newest first; `unreadable` counts the lines that hold none.

    Pass `next` as `before` to get the following page; it is null if there is none.
    """

    entries: list[AuditEntry]
    unreadable: int
    next: str | None


class BrokenLine(Model, kw_only=True):
    """The first line that is not as it was written."""

    file: str
    line: int
    why: str


class Verification(Model, kw_only=True):
    """How many entries are intact, in how many files, and the hash of the last of them."""

    intact: bool
    entries: int
    files: int
    last: str
    flaw: BrokenLine | None


class AuditTrail:
    """The audit log of a data directory."""

    def __init__(self, resources: FileResources) -> None:
        self._log = resources.audit
        self._directory = resources.folders.audit

    async def newest(self, wanted: AuditFilter, limit: int, before: str = "") -> AuditPage:
        """Return the newest entries; `before` is the hash of one, and older ones follow."""
        found = await asyncio.to_thread(newest, self._directory, wanted, limit, before)
        last = found.entries[-1].hash if len(found.entries) == limit else None
        return AuditPage(entries=found.entries, unreadable=found.unreadable, next=last)

    async def follow(self, wanted: AuditFilter, limit: int) -> AsyncIterator[AuditEntry]:
        """Yield the newest entries, oldest first, and then each new one, without end."""
        follower = Follower(self._directory)
        try:
            # The follower comes first, so that no entry falls between the two.
            before = newest(self._directory, wanted, limit).entries[::-1]
            seen = {entry.hash for entry in before}
            for entry in before:
                yield entry
            while True:
                for entry in follower.read(wanted):
                    if entry.hash not in seen:
                        yield entry
                await asyncio.sleep(POLL_SECONDS)
        finally:
            follower.close()

    async def verify(self) -> Verification:
        """Read the whole log and name the first line that was changed, removed or added."""
        found = await asyncio.to_thread(verify, self._directory)
        flaw = BrokenLine(**asdict(found.flaw)) if found.flaw else None
        return Verification(
            intact=flaw is None,
            entries=found.entries,
            files=found.files,
            last=found.last,
            flaw=flaw,
        )

    @asynccontextmanager
    async def server(
        self, *, address: str, is_open: bool, metrics_port: int
    ) -> AsyncIterator[None]:
        """Record that a server listens, and at the end that it stopped in an orderly way.

        `is_open` means that it asks for no token.
        """
        details: JsonObject = {"address": address, "open": is_open, "metricsPort": metrics_port}
        await self._log().record("server.started", SYSTEM, details=details)
        yield
        await self._log().record("server.stopped", SYSTEM)
