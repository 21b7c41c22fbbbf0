"""Node type `approval`: waits until a person allows or denies something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.approval import question
from infloop.model.values import JsonObject, as_text
from infloop.nodes.base import Outcome, failed, whole_number

if TYPE_CHECKING:
    from infloop.nodes.base import StepContext


async def perform(step: StepContext, config: JsonObject) -> Outcome:
    """Ask; everything but an answer that allows it leaves by `error`."""
    title = as_text(config.get("question")).strip()
    if not title:
        return failed("the question is empty")
    details = as_text(config.get("details"))
    ask = step.ask_person()
    if ask is None:
        reason = "nobody is asked here: INFLOOP_APPROVAL_TIMEOUT_MS is 0"
        return failed(f"denied: {reason}", answer="denied", why=reason)
    asked = question(
        "approval",
        title,
        {"details": details} if details else {},
        timeout_ms=whole_number(config.get("timeoutMs"), 0),
    )
    decision = await ask(asked)
    if decision.allowed:
        return Outcome("next", {"answer": "allowed", "why": decision.why})
    return failed(f"denied: {decision.why}", answer="denied", why=decision.why)
