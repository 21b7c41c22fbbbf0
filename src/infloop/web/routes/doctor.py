"""What this machine can confine."""

from __future__ import annotations

from infloop.application.doctor import DoctorReport, examine
from infloop.web.routing import App, router

ROUTER = router("doctor")


@ROUTER.get("/api/doctor")
async def read_report(app: App) -> DoctorReport:
    """Try each isolation level and say what holds; takes a few seconds the first time."""
    return await examine(app)
