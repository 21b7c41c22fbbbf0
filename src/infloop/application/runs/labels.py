"""The nodes of a run's workflow, and their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from infloop.engine.graph import Definition, decode_definition

if TYPE_CHECKING:
    from collections.abc import Iterator


class Labels:
    """The labels of a run's nodes; a node without a label has its id."""

    def __init__(self, definition: bytes) -> None:
        try:
            self._definition = decode_definition(definition)
        except msgspec.DecodeError:  # an imported run has no workflow
            self._definition = Definition("", {})
        self._nodes: dict[str, dict[str, dict[str, Any]]] = {}

    def of(self, shown_node: str) -> str:
        """Return the label of a node; inside a call its name is `call/node`."""
        workflow = self._definition.root
        *calls, name = shown_node.split("/")
        for call in calls:
            config = self.node(workflow, call).get("config") or {}
            workflow = str(config.get("workflowId", ""))
        return str(self.node(workflow, name).get("label") or name)

    def node(self, workflow: str, name: str) -> dict[str, Any]:
        """Return a node of a workflow, or an empty object."""
        if workflow not in self._nodes:
            body = self._definition.workflows.get(workflow, {})
            self._nodes[workflow] = {n["id"]: n for n in _every_node(body.get("nodes") or [])}
        return self._nodes[workflow].get(name, {})


def _every_node(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from _every_node(node.get("children") or [])
