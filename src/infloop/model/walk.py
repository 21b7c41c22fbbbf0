"""Iterates over all nodes of a workflow, however deeply they are nested."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infloop.model.problems import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.nodes import Node
    from infloop.model.workflow import Workflow


class PlacedNode(NamedTuple):
    """A node with its path in the file and the container around it."""

    node: Node
    path: str
    parent: Node | None

    @property
    def place(self) -> str:
        """The place of a problem with it."""
        return f"{self.path} {short_repr(self.node.id)}" if self.node.id else self.path


def every_node(workflow: Workflow) -> Iterator[PlacedNode]:
    """Yield each node before its children."""
    yield from _placed(workflow.nodes, "nodes", None)


def _placed(nodes: tuple[Node, ...], path: str, parent: Node | None) -> Iterator[PlacedNode]:
    for index, node in enumerate(nodes):
        here = f"{path}[{index}]"
        yield PlacedNode(node, here, parent)
        if node.children:
            yield from _placed(node.children, f"{here}.children", node)
