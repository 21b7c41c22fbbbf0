"""What waits for a person, and the answers to it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field

from infloop.application.approvals import ApprovalAnswer, ApprovalList
from infloop.model.approval import MAX_NOTE_CHARS, ApprovalState
from infloop.web.errors import documented
from infloop.web.routing import App, Body, Who, router

ROUTER = router("approvals")

ApprovalId = Annotated[str, Path(max_length=200)]


class Decision(Body):
    """The answer to a question."""

    decision: Literal["allow", "deny"]
    note: str = Field("", max_length=MAX_NOTE_CHARS)


@ROUTER.get("/api/approvals")
async def list_approvals(
    app: App, state: Annotated[ApprovalState, Query()] = "waiting"
) -> ApprovalList:
    """List what waits for a person, or what became of earlier questions."""
    return await app.approvals.all(state)


@ROUTER.get("/api/approvals/{approval_id}", responses=documented(404))
async def read_approval(approval_id: ApprovalId, app: App) -> ApprovalAnswer:
    """Return a question, and what became of it."""
    return ApprovalAnswer(approval=await app.approvals.read(approval_id))


@ROUTER.post("/api/approvals/{approval_id}", responses=documented(404, 409))
async def answer_approval(
    approval_id: ApprovalId, body: Decision, app: App, who: Who
) -> ApprovalAnswer:
    """Allow or deny what is asked; the first answer counts."""
    settled = await app.approvals.answer(approval_id, body.decision, who, body.note)
    return ApprovalAnswer(approval=settled)
