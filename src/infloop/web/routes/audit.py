"""The audit log, for those who are logged in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from infloop.application.audit import AuditPage, Verification
from infloop.model.audit import AuditFilter
from infloop.web.routing import App, router

ROUTER = router("audit")

_LATEST = 253_402_300_799_999  # the end of the year 9999
Text = Annotated[str, Query(max_length=200)]
Time = Annotated[int | None, Query(ge=0, le=_LATEST, description="Milliseconds since 1970.")]


@ROUTER.get("/api/audit")
async def read_audit(
    app: App,
    event: Text = "",
    actor: Text = "",
    run: Text = "",
    correlation_id: Annotated[str, Query(alias="correlationId", max_length=200)] = "",
    since: Time = None,
    until: Time = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    before: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
) -> AuditPage:
    """Return the newest matching entries; `event` is a name, or an area such as `login`."""
    wanted = AuditFilter(event, actor, run, correlation_id, since, until)
    return await app.audit.newest(wanted, limit, before)


@ROUTER.get("/api/audit/verify")
async def verify_audit(app: App) -> Verification:
    """Read the whole log, and name the first line that is not as it was written."""
    return await app.audit.verify()
