"""What agents and judges have cost; an amount that is not known is never 0."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Query

from infloop.application.costs import CostReport, Grouping
from infloop.web.routing import App, router

ROUTER = router("costs")


@ROUTER.get("/api/costs")
async def read_costs(
    app: App,
    by: Grouping = "day",
    since: Annotated[date | None, Query(description="Calls on or after this day.")] = None,
) -> CostReport:
    """Return what all provider calls cost."""
    return await app.costs.report(by, since)
