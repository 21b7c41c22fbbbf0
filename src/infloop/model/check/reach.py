"""The rule for nodes that can never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext
    from infloop.model.nodes import Node


def check_reach(check: CheckContext) -> None:
    """Report nodes that cannot be reached from the start node."""
    graph = check.graph
    if graph.start is None or not graph.start.id:
        return
    reached = check.flow.reachable(graph.start.id)
    targets = {target for edges in graph.followed.values() for target in edges.values()}
    for placed in graph.nodes:
        node, parent = placed.node, placed.parent
        if not node.id or node.id in reached or node.id in graph.unknown:
            continue
        if not node.runs or (node.is_start and parent is None):
            continue
        if parent is not None and parent.id not in reached:
            continue  # the container is reported already
        if node.id in targets:
            reason = "only nodes that never run lead to it"
        else:
            reason = "no edge leads to it"
        check.mistake(placed.place, f"can never run: {reason}", _way_in(parent))


def _way_in(parent: Node | None) -> str:
    if parent is not None and parent.opens == "round":
        return f"the body begins at {parent.children[0].id!r}; connect it from there, or remove it"
    return "connect it, or remove it"
