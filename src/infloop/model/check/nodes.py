"""The rules about each node's configuration: those of its type, and who may have children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.node_check import NodeCheck
from infloop.model.nodes import NODE_MODELS

if TYPE_CHECKING:
    from infloop.model.check.case import CheckContext


def check_nodes(case: CheckContext) -> None:
    """Report a configuration with which a node could not do its work."""
    for seat in case.graph.seats:
        node, place = seat.node, seat.place
        if node.children and not node.holds_nodes and node.id not in case.graph.unknown:
            case.report.error(
                f"{place} children",
                f"a node of type {node.type!r} holds no other nodes",
                f"only {_holders()} do; move them out",
            )
        branches = len(case.graph.roots(node)) if node.opens == "branch" else 0
        node.check(NodeCheck(place, case.report, case.providers, branches))


def _holders() -> str:
    return " and ".join(name for name, model in NODE_MODELS.items() if model.holds_nodes)
