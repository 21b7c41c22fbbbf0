"""Says whether two workflows mean the same: what an engine, a person or the console would notice.

The order of nodes and edges in the file means nothing, except where a run begins: the first start,
the first child and the last condition of a loop, the order of branches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.loop_file.arranging import branch_roots
from infloop.model.walk import every_node

if TYPE_CHECKING:
    from infloop.model.nodes import Node
    from infloop.model.workflow import Workflow


def same_meaning(one: Workflow, other: Workflow) -> bool:
    """Say whether two workflows mean the same."""
    return meaning_of(one) == meaning_of(other)


def meaning_of(workflow: Workflow) -> dict[str, object]:
    """Return everything that a workflow means; equal for workflows that mean the same."""
    followed: dict[str, dict[str, str]] = {}
    drawn: set[tuple[str, ...]] = set()
    for edge in workflow.edges:
        handles = followed.setdefault(edge.source, {})
        if edge.source_handle not in handles:
            handles[edge.source_handle] = edge.target
            if edge.id or edge.target_handle:
                ends = edge.source, edge.source_handle
                drawn.add((*ends, edge.id, edge.target_handle or ""))
    nodes: dict[str, object] = {}
    for placed in every_node(workflow):
        node = placed.node
        raw = node.to_json()
        raw.pop("children", None)
        parent = placed.parent.id if placed.parent is not None else ""
        nodes[node.id] = raw, parent, _begins(node, followed)
    header = workflow.to_json()
    del header["nodes"], header["edges"]
    start = next((node.id for node in workflow.nodes if node.is_start), "")
    return {"header": header, "start": start, "nodes": nodes, "edges": followed, "drawn": drawn}


def _begins(node: Node, followed: dict[str, dict[str, str]]) -> tuple[str, ...]:
    """Return the children at which a container begins, and the condition it asks first."""
    if node.opens == "branch":
        return branch_roots(node.children, followed)
    checks = [child.id for child in node.children if child.gives_verdict]
    return (*(child.id for child in node.children[:1]), *checks[-1:])
