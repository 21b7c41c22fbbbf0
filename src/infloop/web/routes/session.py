"""Who the caller is, and what that permits."""

from __future__ import annotations

from infloop.application.caller import SessionInfo
from infloop.web.routing import Who, router

ROUTER = router("session")


@ROUTER.get("/api/session")
async def read_session(who: Who) -> SessionInfo:
    """Return who the caller is, and whether it may answer questions and apply changes."""
    return SessionInfo(actor=who.actor.kind, can_answer=who.is_identified)
