"""The rule for each node: its type's own rules, and whether it may have children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.node_check import NodeCheck
from infloop.model.nodes import NODE_MODELS

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext


def check_nodes(check: CheckContext) -> None:
    """Report a configuration with which a node could not do its work."""
    strict = check.graph.workflow.strict
    for placed in check.graph.nodes:
        node, place = placed.node, placed.place
        if node.children and not node.holds_nodes and node.id not in check.graph.unknown:
            check.report.error(
                f"{place} children",
                f"a node of type {node.type!r} holds no other nodes",
                f"only {_holders()} do; move them out",
            )
        branches = len(check.graph.roots(node)) if node.opens == "branch" else 0
        node.check(NodeCheck(place, check.report, check.providers, branches, strict))


def _holders() -> str:
    return " and ".join(name for name, model in NODE_MODELS.items() if model.holds_nodes)
