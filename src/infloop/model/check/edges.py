"""The rule for edges: both ends exist, the handle exists, and the edge can be followed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from infloop.model.problems import short_repr

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext
    from infloop.model.check.graph import Graph
    from infloop.model.workflow import Edge


def check_edges(check: CheckContext) -> None:
    """Report edges without a node at an end, without a valid handle, or never followed."""
    graph, report = check.graph, check.report
    ids: set[str] = set()
    taken: set[tuple[str, str]] = set()
    count = Counter(placed.node.id for placed in graph.nodes)
    for index, edge in enumerate(graph.workflow.edges):
        place = f"edges[{index}]" + (f" {short_repr(edge.id)}" if edge.id else "")
        if edge.id and edge.id in ids:
            check.mistake(
                place, f"the id {short_repr(edge.id)} is used twice", "rename one of them"
            )
        ids.add(edge.id)
        for end, node_id in (("source", edge.source), ("target", edge.target)):
            if not node_id:
                report.error(f"{place} {end}", "is missing", "name a node's id")
            elif node_id not in graph.by_id:
                report.error(
                    f"{place} {end}",
                    f"there is no node {short_repr(node_id)}",
                    report.guess(node_id, graph.by_id),
                )
        if edge.source in graph.by_id:
            _handle(check, place, edge)
            if (edge.source, edge.source_handle) in taken:
                report.warning(
                    place,
                    f"{edge.source!r} has another edge from {edge.source_handle!r}; "
                    "only the first is followed",
                    "remove one of them, or use a parallel node to do both",
                )
            taken.add((edge.source, edge.source_handle))
        if count[edge.target] == 1:  # of two nodes with one id, the other may be meant
            _container(check, place, edge)
        if _is_note(graph, edge.target):
            report.error(f"{place} target", f"{edge.target!r} is a sidenote, which never runs")


def _handle(check: CheckContext, place: str, edge: Edge) -> None:
    graph, placed = check.graph, check.graph.by_id[edge.source]
    if edge.source in graph.unknown:
        return
    exits = placed.node.exits()
    kind = placed.node.type
    if not exits:
        check.mistake(
            f"{place} source", f"nothing follows a node of type {kind!r}", "remove the edge"
        )
    elif edge.source_handle not in exits:
        mode = placed.node.exits_depend_on()
        # It is never followed: often it is left over from when the node had another mode.
        check.mistake(
            f"{place} sourceHandle",
            f"a node of type {kind!r}{f' in {mode}' if mode else ''} has no handle "
            f"{short_repr(edge.source_handle)}",
            f"it leaves by {', '.join(exits)}",
        )
    elif (
        placed.node.gives_verdict
        and placed.parent is not None
        and placed.parent.opens == "round"
        and edge.source_handle in ("met", "not_met")
    ):
        does = "ends the loop" if edge.source_handle == "met" else "begins the next round"
        check.report.warning(
            place,
            f"directly inside a loop {edge.source_handle!r} {does}; this edge is never followed",
            "continue after the loop, or decide with a branch instead",
        )


def _container(check: CheckContext, place: str, edge: Edge) -> None:
    """Report an edge into a container from outside: the node would not be a part of it."""
    target = check.graph.by_id.get(edge.target)
    if target is None or target.parent is None or edge.source not in check.graph.by_id:
        return
    parent = target.parent
    if parent.id not in check.graph.ancestors(edge.source):
        kind = "round" if parent.opens == "round" else "branch"
        check.mistake(
            f"{place} target",
            f"leads into {short_repr(parent.id)} from outside; {short_repr(edge.target)} would run "
            f"once, and in no {kind} of it",
            f"lead to {short_repr(parent.id)} instead",
        )


def _is_note(graph: Graph, node_id: str) -> bool:
    placed = graph.by_id.get(node_id)
    return placed is not None and not placed.node.runs and node_id not in graph.unknown
