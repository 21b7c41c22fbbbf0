"""Which references a node may use: what an editor offers after `{{`.

It is the other side of `references`: what is offered here is never reported there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.model.check.flow import Flow
from infloop.model.check.graph import Graph
from infloop.model.check.references import order_is_known
from infloop.model.references import input_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.nodes import Node
    from infloop.model.parsing import Parsed


class Available(msgspec.Struct, frozen=True):
    """A reference and what it means. `source` is a node, or `inputs` or `globals`.

    `certain` means that it has a value whenever the node runs.
    """

    reference: str
    source: str
    certain: bool
    description: str


def available_references(parsed: Parsed, node_id: str) -> list[Available] | None:
    """Return what a node may refer to; None if there is no such node."""
    assert parsed.workflow is not None
    graph = Graph(parsed.workflow, parsed.unknown)
    if node_id not in graph.by_id:
        return None
    return [*_inputs(graph), *_globals(graph), *_outputs(graph, node_id)]


def _inputs(graph: Graph) -> Iterator[Available]:
    declared = graph.workflow.inputs
    for spec in declared or ():
        if spec.name:
            yield Available(
                f"inputs.{spec.name}",
                "inputs",
                certain=True,
                description=spec.description or spec.type,
            )
    if declared is None:
        for name in input_names(template for _, _, template in graph.templates):
            yield Available(
                f"inputs.{name}",
                "inputs",
                certain=False,
                description="An input that is not declared.",
            )


def _globals(graph: Graph) -> Iterator[Available]:
    for name in graph.workflow.globals:
        yield Available(
            f"globals.{name}", "globals", certain=True, description="A global of the workflow."
        )


def _outputs(graph: Graph, reader: str) -> Iterator[Available]:
    possible, certain = _before(graph, reader)
    for source, placed in graph.by_id.items():
        if source not in possible or source in graph.unknown:
            continue
        for path, description in _paths(graph, placed.node):
            yield Available(f"{source}.{path}", source, source in certain, description)


def _before(graph: Graph, reader: str) -> tuple[set[str], set[str]]:
    """Return the nodes that can have run before a node, and those that surely have."""
    if graph.start is None or not order_is_known(graph):
        return set(graph.by_id), set()
    flow = Flow(graph)
    reached = flow.reachable(graph.start.id)
    if reader not in reached:  # it may be connected later
        return set(graph.by_id), set()
    never = {source for _, source in flow.never_before({(reader, one) for one in reached})}
    return reached - never, flow.always_before(graph.start.id, reader)


def _paths(graph: Graph, node: Node) -> Iterator[tuple[str, str]]:
    for name in node.output_names():
        yield name, node.outputs.get(name, "An output that the node declares.")
    if node.opens == "branch":
        for root in filter(None, graph.roots(node)):
            yield f"children.{root}.status", f"How the branch {root!r} ended."
