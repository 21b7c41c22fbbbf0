"""Rounds of a loop that change nothing any more.

A round is known by the files it left behind and by what its condition said. Rounds that end alike,
one after another, are a loop that will not get anywhere by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.engine.graph import GraphNode
    from infloop.engine.state import Frame, Step
    from infloop.model.values import JsonObject

ROUNDS = 3
"""How many rounds may end alike where the workflow does not say how many."""

_SHOWN_CHARACTERS = 200


def rounds_allowed(config: JsonObject) -> int:
    """Return how many rounds of a loop may end alike; 0 means any number."""
    limit = config.get("noProgressLimit")
    if limit is True:
        return ROUNDS
    return int(limit) if isinstance(limit, int | float) else 0


def note_verdict(frame: Frame, node: GraphNode, handle: str, outputs: JsonObject) -> None:
    """Remember a condition's answer.

    The reasons of a model are left out: they are worded differently each time.
    """
    detail = str(outputs.get("detail") or "")
    frame.verdict = handle if node.costs_money else f"{handle}, {detail}"
    frame.failure = _last_line(outputs) or detail


def _last_line(outputs: JsonObject) -> str:
    for name in ("stdout", "stderr"):
        lines = str(outputs.get(name) or "").strip().splitlines()
        if lines:
            return lines[-1].strip()[-_SHOWN_CHARACTERS:]
    return ""


def end_of_round(step: Step, frame: Frame, allowed: int) -> str:
    """Compare a round with the one before; return why the loop must stop, if it must."""
    mark = f"{frame.tree} {frame.verdict}"
    step.unchanged = step.unchanged + 1 if mark == step.mark else 1
    step.mark = mark
    if step.unchanged < allowed:
        return ""
    still = f"; it still ends with: {frame.failure}" if frame.failure else ""
    return f"no progress: {step.unchanged} rounds in a row left the files as they were{still}"
