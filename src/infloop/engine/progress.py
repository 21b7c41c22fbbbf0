"""Detects rounds of a loop that change nothing.

A round is compared by the files that it left behind and the answer of its condition. A loop makes
no progress if several rounds in a row end in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.engine.graph import GraphNode
    from infloop.engine.state import Frame, Step
    from infloop.model.values import JsonObject

DEFAULT_ROUNDS = 3
"""How many equal rounds stop a loop whose `noProgressLimit` is true."""

_MAX_LINE_CHARS = 200


def rounds_allowed(config: JsonObject) -> int:
    """Return how many equal rounds stop a loop; 0 means that it is never stopped."""
    limit = config.get("noProgressLimit")
    if limit is True:
        return DEFAULT_ROUNDS
    return int(limit) if isinstance(limit, int | float) else 0


def note_verdict(frame: Frame, node: GraphNode, handle: str, outputs: JsonObject) -> None:
    """Store the answer of a condition.

    The reasons of a model are left out: they are worded differently each time.
    """
    detail = str(outputs.get("detail") or "")
    frame.verdict = handle if node.costs_money else f"{handle}, {detail}"
    frame.failure = _last_line(outputs) or detail


def _last_line(outputs: JsonObject) -> str:
    for name in ("stdout", "stderr"):
        lines = str(outputs.get(name) or "").strip().splitlines()
        if lines:
            return lines[-1].strip()[-_MAX_LINE_CHARS:]
    return ""


def first_denial(outputs: JsonObject) -> str:
    """Return the first thing that an agent was not allowed to do, or an empty string."""
    said = outputs.get("denied")
    return said.partition("\n")[0] if isinstance(said, str) else ""


def end_of_round(step: Step, frame: Frame, allowed: int) -> str:
    """Compare a round with the one before; return why the loop must stop, or an empty string."""
    mark = f"{frame.tree} {frame.verdict}"
    step.unchanged = step.unchanged + 1 if mark == step.mark else 1
    step.mark = mark
    if step.unchanged < allowed:
        return ""
    denied = f"; {frame.denied}" if frame.denied else ""
    still = f"; it still ends with: {frame.failure}" if frame.failure else ""
    return f"no progress: {step.unchanged} rounds in a row ended with the same files{denied}{still}"
