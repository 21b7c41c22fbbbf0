"""A workflow as a graph, for lookups by the rules."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from infloop.model.references import node_templates
from infloop.model.walk import every_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infloop.model.nodes import Node
    from infloop.model.template import Template
    from infloop.model.walk import PlacedNode
    from infloop.model.workflow import Workflow


class Graph:
    """A workflow with its nodes by id, and the edge that is followed from each handle."""

    def __init__(self, workflow: Workflow, unknown: frozenset[str]) -> None:
        self.workflow = workflow
        self.unknown = unknown
        self._roots: dict[str, dict[str, None]] = {}
        self.nodes = list(every_node(workflow))
        self.by_id: dict[str, PlacedNode] = {}
        for placed in self.nodes:
            if placed.node.id:
                self.by_id.setdefault(placed.node.id, placed)
        self.followed: dict[str, dict[str, str]] = {}
        for edge in workflow.edges:
            if edge.source in self.by_id and edge.target in self.by_id:
                self.followed.setdefault(edge.source, {}).setdefault(
                    edge.source_handle, edge.target
                )

    @cached_property
    def start(self) -> Node | None:
        """The node where a run begins."""
        return next((node for node in self.workflow.nodes if node.is_start), None)

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names of the declared inputs."""
        return frozenset(spec.name for spec in self.workflow.inputs or ())

    @cached_property
    def names(self) -> list[str]:
        """The words that a reference may begin with."""
        return [*self.by_id, "inputs", "globals"]

    @cached_property
    def templates(self) -> list[tuple[PlacedNode, tuple[str, ...], Template]]:
        """Every text with a reference, its node and its path."""
        return [
            (placed, path, template)
            for placed in self.nodes
            for path, template, _ in node_templates(placed.node)
        ]

    def roots(self, parallel: Node) -> Mapping[str, None]:
        """Return the children that begin a branch, in order: no sibling leads to them."""
        if parallel.id not in self._roots:
            children = [child.id for child in parallel.children]
            entered = {
                target for child in children for target in self.followed.get(child, {}).values()
            }
            self._roots[parallel.id] = {child: None for child in children if child not in entered}
        return self._roots[parallel.id]

    def ancestors(self, node_id: str) -> Iterator[str]:
        """Yield the containers around a node, innermost first."""
        placed = self.by_id.get(node_id)
        while placed is not None and placed.parent is not None:
            yield placed.parent.id
            placed = self.by_id.get(placed.parent.id)
