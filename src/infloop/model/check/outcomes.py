"""The rule for failures that a run would not show.

A workflow that is not strict succeeds although a loop used up its rounds, or although a condition
was not met and nothing follows. The author should know that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.nodes import LoopNode

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext
    from infloop.model.check.graph import Graph
    from infloop.model.walk import PlacedNode

_STRICT = 'or let such runs fail: "strict": true'


def check_outcomes(check: CheckContext) -> None:
    """Report loops and conditions that fail without a trace."""
    graph = check.graph
    if graph.workflow.strict:
        return
    read = _nodes_whose_outcome_is_read(graph)
    for placed in graph.nodes:
        node = placed.node
        handles = graph.followed.get(node.id, {})
        if node.id in read:
            continue
        if isinstance(node, LoopNode):
            ends = node.conditions() and not node.config.infinite
            if ends and "exhausted" not in handles:
                check.report.warning(
                    placed.place,
                    "when its rounds are used up, the run goes on as if its condition were met",
                    f"connect `exhausted`, {_STRICT}",
                )
        elif node.gives_verdict and "not_met" not in handles and not _in_a_round(placed):
            check.report.warning(
                placed.place,
                "when it is not met, the run ends as succeeded",
                f"connect `not_met`, {_STRICT}",
            )


def _nodes_whose_outcome_is_read(graph: Graph) -> set[str]:
    """Return the loops and conditions of which a later node reads the answer."""
    return {
        reference[0]
        for _, _, template in graph.templates
        for reference in template.references
        if len(reference) > 1 and reference[1] in ("broke", "met", "iterations")
    }


def _in_a_round(placed: PlacedNode) -> bool:
    return placed.parent is not None and placed.parent.opens == "round"
