"""What waits for a person, and the answers to it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field

from infloop.errors import UsageError
from infloop.model.approval import LONGEST_NOTE, ApprovalState
from infloop.runtime.approvals import Approvals, shown
from infloop.store.sqlite.approvals import AlreadySettled
from infloop.web.dependencies import WebParts
from infloop.web.errors import Refused, documented
from infloop.web.routing import CorrelationId, Parts, Shape, Who, router

ROUTER = router("approvals")

KNOWN = ("api-token", "browser-session")
"""Who may answer: whoever reaches a server that asks for no token may be the agent itself."""

ApprovalId = Annotated[str, Path(max_length=200)]


class ApprovalList(Shape):
    """Questions in one state; what has a `hint` is answered as that says."""

    approvals: list[dict[str, Any]]


class ApprovalAnswer(Shape):
    """One question, and what became of it."""

    approval: dict[str, Any]


class Decision(Shape):
    """What somebody says to a question."""

    decision: Literal["allow", "deny"]
    note: str = Field("", max_length=LONGEST_NOTE)


@ROUTER.get("/api/approvals")
async def list_approvals(
    parts: Parts, state: Annotated[ApprovalState, Query()] = "waiting"
) -> ApprovalList:
    """List what waits for a person, or what became of earlier questions."""
    found = await _approvals(parts).listed(state)
    return ApprovalList(approvals=[shown(each) for each in found])


@ROUTER.get("/api/approvals/{approval_id}", responses=documented(404))
async def read_approval(approval_id: ApprovalId, parts: Parts) -> ApprovalAnswer:
    """Return a question, and what became of it."""
    return ApprovalAnswer(approval=shown(await _approvals(parts).read(approval_id)))


@ROUTER.post("/api/approvals/{approval_id}", responses=documented(404, 409))
async def answer_approval(
    approval_id: ApprovalId,
    said: Decision,
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
) -> ApprovalAnswer:
    """Allow or deny what is asked; the first answer counts."""
    if who.kind not in KNOWN:
        raise Refused(
            403,
            "token-needed",
            "a server without a token takes no answers: the agent that asks may be able to reach "
            "it. Set INFLOOP_API_TOKEN, or use `infloop approvals`",
        )
    try:
        settled = await _approvals(parts).answer(
            approval_id, said.decision, who, note=said.note, correlation_id=correlation_id
        )
    except AlreadySettled as error:
        raise Refused(409, "already-answered", str(error)) from None
    except UsageError as error:
        raise Refused(409, "answered-elsewhere", str(error)) from None
    return ApprovalAnswer(approval=shown(settled))


def _approvals(parts: WebParts) -> Approvals:
    assert parts.service.approvals is not None
    return parts.service.approvals
