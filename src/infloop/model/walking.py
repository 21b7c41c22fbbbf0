"""Every node of a workflow in its place, however deep it is nested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.model.problems import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.workflow import Node, Workflow


@dataclass(frozen=True, slots=True)
class Seat:
    """A node in its place: the container around it, and where a problem with it is."""

    node: Node
    place: str
    parent: Node | None


def every_node(workflow: Workflow) -> Iterator[Seat]:
    """Yield each node before its children."""
    yield from _seats(workflow.nodes, "nodes", None)


def _seats(nodes: tuple[Node, ...], path: str, parent: Node | None) -> Iterator[Seat]:
    for index, node in enumerate(nodes):
        here = f"{path}[{index}]"
        yield Seat(node, f"{here} {shown(node.id)}" if node.id else here, parent)
        yield from _seats(node.children, f"{here}.children", node)
