"""Whether the server is well, for who watches it; says nothing else to anybody."""

from __future__ import annotations

import asyncio
from typing import Literal

from infloop.errors import InfloopError
from infloop.web.errors import Refused
from infloop.web.routing import Parts, Shape, router

ROUTER = router("health")

PATIENCE_SECONDS = 5.0


class Health(Shape):
    """It is well."""

    status: Literal["ok"] = "ok"


@ROUTER.get("/healthz")
async def alive() -> Health:
    """Answer, which shows that the server lives."""
    raise AssertionError("this is answered before routes are looked for: see `directly`")


@ROUTER.get("/readyz")
async def ready(parts: Parts) -> Health:
    """Answer when runs can be stored and begun."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await parts.dispatcher.queue.count()
    except (InfloopError, TimeoutError) as error:
        raise Refused(503, "not-ready", "the store does not answer") from error
    return Health()
