"""The audit log, for those who are logged in."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import Query

from infloop.model.audit import Wanted
from infloop.store.audit.reading import newest
from infloop.web.routing import Parts, Shape, router

ROUTER = router("audit")

_LATEST = 253_402_300_799_999  # the end of the year 9999
Text = Annotated[str, Query(max_length=200)]
Time = Annotated[int | None, Query(ge=0, le=_LATEST, description="Milliseconds since 1970.")]


class AuditPage(Shape):
    """Entries, the newest first."""

    entries: list[dict[str, Any]]
    unreadable: int


@ROUTER.get("/api/audit")
async def read_audit(
    parts: Parts,
    event: Text = "",
    actor: Text = "",
    run: Text = "",
    correlation_id: Annotated[str, Query(alias="correlationId", max_length=200)] = "",
    since: Time = None,
    until: Time = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> AuditPage:
    """Return the newest entries that fit; `event` is a name, or an area such as `login`."""
    wanted = Wanted(event, actor, run, correlation_id, since, until)
    found = await asyncio.to_thread(newest, parts.places.audit, wanted, limit)
    return AuditPage(
        entries=[msgspec.to_builtins(entry) for entry in found.entries],
        unreadable=found.unreadable,
    )
