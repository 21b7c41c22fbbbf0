"""The demo, which needs no account."""

from __future__ import annotations

from infloop.application.runs.models import RunPromise
from infloop.web.errors import documented
from infloop.web.routing import App, Who, router

ROUTER = router("demo")


@ROUTER.post("/api/demo", status_code=202, responses=documented(404, 409, 422))
async def start_demo(app: App, who: Who) -> RunPromise:
    """Start the demo: a scripted agent turns the failing tests of a small project green."""
    return await app.demo.start(who)
