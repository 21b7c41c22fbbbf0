"""Puts the nodes of a workflow into written order: which step stands in which list.

Any arrangement can be written correctly, because `writing` adds a jump wherever the order does not
say what the edges say. So this only has to find one that reads well: steps in a row follow each
other, and what belongs to one handle alone is a list under that handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infloop.model.nodes import Node
    from infloop.model.values import JsonObject
    from infloop.model.workflow import Workflow

# Lists inside lists are hard to read; a jump is written instead.
MAX_NESTING = 8


class Placed(msgspec.Struct):
    """A node with the steps that stand under it: of its handles, and inside it."""

    node: Node
    arms: dict[str, list[Placed]] = msgspec.field(default_factory=dict)
    bodies: list[list[Placed]] = msgspec.field(default_factory=list)
    until: Node | None = None


class Arrangement:
    """The written order of a workflow's nodes, and the edges that are followed.

    The loops in `no_until` keep their condition as a step.
    """

    def __init__(self, workflow: Workflow, no_until: frozenset[str] = frozenset()) -> None:
        self._no_until = no_until
        self.followed: dict[str, dict[str, str]] = {}
        self._entered: dict[str, int] = {}
        for edge in workflow.edges:
            handles = self.followed.setdefault(edge.source, {})
            if edge.source_handle not in handles:
                handles[edge.source_handle] = edge.target
                self._entered[edge.target] = self._entered.get(edge.target, 0) + 1
        self._free: dict[str, Node] = {}
        start = next((node.id for node in workflow.nodes if node.is_start), "")
        self.steps = self._level(workflow.nodes, start)

    def _level(self, nodes: Sequence[Node], first: str) -> list[Placed]:
        """Arrange the nodes of one level, from `first` on."""
        outer, self._free = self._free, {node.id: node for node in nodes}
        placed: list[Placed] = []
        for node_id in (first, *(node.id for node in nodes)):
            placed += self._row(node_id)
        self._free = outer
        return placed

    def _row(self, node_id: str, depth: int = 0) -> list[Placed]:
        """Take a node and those that follow it. Inside an arm, stop where ways come together."""
        row: list[Placed] = []
        at: str | None = node_id
        while at in self._free and not (depth and row and self._entered.get(at, 0) > 1):
            placed = Placed(self._free.pop(at))
            self._fill(placed)
            at = self._fork(placed, depth)
            row.append(placed)
        return row

    def _fork(self, placed: Placed, depth: int) -> str | None:
        """Place the arms of a node; return the node that stands after it."""
        node = placed.node
        handles = self.followed.get(node.id, {})
        flow = [handle for handle in node.flow_handles(config_of(node)) if handle in handles]
        after: str | None = handles[flow[0]] if len(flow) == 1 else None
        if len(flow) > 1:
            after = self._join(placed, [handles[one] for one in flow], flow, depth)
        for handle, target in handles.items():
            if handle not in flow and target != after:
                self._arm(placed, handle, target, depth)
        return after

    def _join(self, placed: Placed, targets: list[str], flow: list[str], depth: int) -> str | None:
        """Place the ways of a fork; return where they come together, or go on with the first."""
        shared = [target for target in targets if self._entered.get(target, 0) > 1]
        if depth >= MAX_NESTING:
            return targets[0]
        for handle, target in zip(flow, targets, strict=True):
            self._arm(placed, handle, target, depth)
        ends = [self._end(placed.arms[handle]) for handle in flow if handle in placed.arms]
        return next((one for one in (*shared, *ends) if one in self._free), None)

    def _end(self, row: list[Placed]) -> str | None:
        """Return where a row leads to."""
        last = next((one.node for one in reversed(row) if one.node.runs), None)
        if last is None:
            return None
        handles = self.followed.get(last.id, {})
        ways = (handles.get(one) for one in last.flow_handles(config_of(last)))
        return next((one for one in ways if one in self._free), None)

    def _arm(self, placed: Placed, handle: str, target: str, depth: int) -> None:
        """Place what only this handle leads to under it."""
        if target in self._free and self._entered[target] == 1 and depth < MAX_NESTING:
            placed.arms[handle] = self._row(target, depth + 1)

    def _fill(self, placed: Placed) -> None:
        """Arrange the children of a container."""
        node = placed.node
        children = node.children
        if not children:
            return
        if node.opens != "round":
            roots = branch_roots(children, self.followed)
            placed.bodies = self._branches(children, roots)
            return
        last = next((one for one in reversed(children) if one.gives_verdict), None)
        if last is not None and (last is not children[0] or len(children) == 1):
            # It stays the last: a loop that checks first asks the last condition of its body.
            rest = [one for one in children if one is not last]
            body = self._level(rest, rest[0].id) if rest else []
            if self.followed.get(last.id) or node.id in self._no_until:
                body.append(Placed(last))
            else:
                placed.until = last
            placed.bodies = [body] if body else []
        else:
            placed.bodies = [self._level(children, children[0].id)]

    def _branches(self, children: Sequence[Node], roots: Iterable[str]) -> list[list[Placed]]:
        outer, self._free = self._free, {node.id: node for node in children}
        rows = [self._row(one) for one in (*roots, *(node.id for node in children))]
        self._free = outer
        return [row for row in rows if row]


def config_of(node: Node) -> JsonObject:
    """Return the configuration of a node as JSON."""
    return node.config.to_json()


def branch_roots(
    children: Sequence[Node], followed: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Return the children that begin a branch: no sibling leads to them."""
    entered = {target for node in children for target in followed.get(node.id, {}).values()}
    return tuple(node.id for node in children if node.id not in entered)
