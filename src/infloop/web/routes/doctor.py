"""What this machine can confine."""

from __future__ import annotations

from infloop.application.attacks import LatestAttack
from infloop.application.doctor import DoctorReport, examine
from infloop.model.isolation import Level
from infloop.web.errors import documented
from infloop.web.routing import App, Body, Who, router

ROUTER = router("doctor")


class AttackRequest(Body):
    """The level that is attacked."""

    level: Level


@ROUTER.get("/api/doctor")
async def read_report(app: App) -> DoctorReport:
    """Try each isolation level and say what holds; takes a few seconds the first time."""
    return await examine(app)


@ROUTER.post("/api/doctor/attack", status_code=202, responses=documented(409))
async def start_attack(body: AttackRequest, app: App, who: Who) -> LatestAttack:
    """Attack a level as a hostile child would; `GET` has the result. Only with a token."""
    return await app.attacks.start(body.level, who)


@ROUTER.get("/api/doctor/attack")
async def read_attack(app: App) -> LatestAttack:
    """Return the attack that was started last, and its result once it is done."""
    return app.attacks.latest()
