"""Nodes without effects: their outcome follows from their configuration alone.

A new node type without effects is one function here and one line in `DECISIONS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.model.patterns import BadPattern, search
from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.values import JsonObject


class Decision(msgspec.Struct, frozen=True):
    """The handle that a node leaves by, its outputs, and its error if it failed."""

    handle: str
    outputs: JsonObject
    error: str = ""


def decide(node_type: str, config: JsonObject) -> Decision | None:
    """Return the outcome of a node without effects, or None for any other node."""
    decision = DECISIONS.get(node_type)
    return None if decision is None else decision(config)


def proceed(config: JsonObject) -> Decision:
    """Continue by `next`."""
    return Decision("next", {})


def compare(lhs: str, op: str, rhs: str) -> bool:
    """Compare two texts; raise BadPattern for a bad pattern, ValueError for an unknown `op`."""
    match op:
        case "==":
            return lhs == rhs
        case "!=":
            return lhs != rhs
        case "contains":
            return rhs in lhs
        case "matches":
            return search(rhs, lhs) is not None
        case _:
            raise ValueError(f"unknown operator {op!r}; use ==, !=, contains or matches")


def branch(config: JsonObject) -> Decision:
    """Compare `lhs` with `rhs`."""
    get = config.get
    lhs, op, rhs = as_text(get("lhs")), as_text(get("op")), as_text(get("rhs"))
    try:
        result = compare(lhs, op, rhs)
    except BadPattern as error:
        reason = f"invalid regex: {error}"
    except ValueError as error:
        reason = str(error)
    else:
        outputs: JsonObject = {"result": result, "lhs": lhs, "rhs": rhs, "op": op}
        return Decision("true" if result else "false", outputs)
    return Decision("error", {"error": reason, "lhs": lhs, "rhs": rhs, "op": op}, reason)


def condition(config: JsonObject) -> Decision | None:
    """Decide a condition of kind sentinel; the other kinds have effects."""
    return sentinel(config) if config.get("kind") == "sentinel" else None


def sentinel(config: JsonObject) -> Decision:
    """Look for a text or pattern in `against`."""
    settings = config.get("sentinel")
    pattern = settings.get("pattern") if isinstance(settings, dict) else None
    is_regex = settings.get("isRegex", False) if isinstance(settings, dict) else None
    if not isinstance(pattern, str) or not isinstance(is_regex, bool):
        return _unmet("invalid sentinel config")
    text = as_text(config.get("against"))
    if is_regex:
        try:
            index = search(pattern, text)
        except BadPattern as error:
            return _unmet(f"invalid regex: {error}")
    else:
        found = text.find(pattern)
        index = found if found >= 0 else None
    if index is None:
        return _unmet("pattern not found")
    return Decision("met", {"met": True, "detail": f"matched at index {index}"})


def _unmet(detail: str) -> Decision:
    return Decision("not_met", {"met": False, "detail": detail})


DECISIONS: Mapping[str, Callable[[JsonObject], Decision | None]] = {
    "start": proceed,
    "end": proceed,
    "sidenote": proceed,
    "branch": branch,
    "condition": condition,
}
