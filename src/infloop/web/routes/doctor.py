"""What this machine can confine."""

from __future__ import annotations

from typing import Any

from infloop.web.routing import Parts, router

ROUTER = router("doctor")


@ROUTER.get("/api/doctor")
async def examine(parts: Parts) -> dict[str, Any]:
    """Try each isolation level and say what holds; takes a few seconds the first time."""
    return await parts.doctor()
