"""Which step can run before which, from one flow graph.

Each node has two points, entered and left:

    leaf        entered -> left
    loop        entered -> the children where a round begins, and left; each child left -> entered
    parallel    entered -> each branch root; each child left -> parallel left
    edge        source left -> target entered
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.model.check.graph import Graph
    from infloop.model.nodes import Node


class Flow:
    """The flow graph: point 2n is where node n is entered, 2n+1 where it is left."""

    def __init__(self, graph: Graph) -> None:
        self._number = {node_id: index for index, node_id in enumerate(graph.by_id)}
        self._next: list[list[int]] = [[] for _ in range(2 * len(self._number))]
        for node_id, placed in graph.by_id.items():
            self._join(placed.node, graph)
            for target in graph.followed.get(node_id, {}).values():
                self._next[self.left(node_id)].append(self.entered(target))

    def entered(self, node_id: str) -> int:
        """Return the point where a node is entered."""
        return 2 * self._number[node_id]

    def left(self, node_id: str) -> int:
        """Return the point where a node is left."""
        return 2 * self._number[node_id] + 1

    def _join(self, node: Node, graph: Graph) -> None:
        entered, left = self.entered(node.id), self.left(node.id)
        self._next[entered].append(left)
        children = [child.id for child in node.children if child.id]
        if node.opens == "round":
            entries = (child.id for child in node.entries() if child.id)
            self._next[entered].extend(map(self.entered, entries))
            back = entered
        elif node.opens == "branch":
            self._next[entered].extend(map(self.entered, filter(None, graph.roots(node))))
            back = left
        else:  # a node of an unknown type may run its children in any order
            self._next[entered].extend(map(self.entered, children))
            back = left
        for child in children:
            self._next[self.left(child)].append(back)

    def reachable(self, node_id: str) -> set[str]:
        """Return the nodes that can be entered once `node_id` is."""
        seen = {self.entered(node_id)}
        waiting = list(seen)
        while waiting:
            for point in self._next[waiting.pop()]:
                if point not in seen:
                    seen.add(point)
                    waiting.append(point)
        return {name for name in self._number if self.entered(name) in seen}

    def never_before(self, pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the pairs (reader, source) whose source cannot be left before reader is entered.

        The sources that lead to a point are a bit set. The sets are propagated once along the graph
        of strongly connected components, which is linear; a search per pair would not be.
        """
        sources = {source: 1 << index for index, source in enumerate({s for _, s in pairs})}
        component, members = self._components()
        before = [0] * len(members)
        for source, bit in sources.items():
            before[component[self.left(source)]] |= bit
        readers: dict[int, list[tuple[str, str]]] = {}
        for pair in pairs:
            readers.setdefault(component[self.entered(pair[0])], []).append(pair)
        never: set[tuple[str, str]] = set()
        for index, points in enumerate(members):
            bits, before[index] = before[index], 0
            never.update(pair for pair in readers.get(index, ()) if not bits & sources[pair[1]])
            for point in points:
                for target in self._next[point]:
                    if component[target] != index:
                        before[component[target]] |= bits
        return never

    def always_before(self, start: str, node_id: str) -> set[str]:
        """Return the nodes that were left on every way from `start` to a node.

        Only points on one such way can be on all. Beginning at its first point, everything that can
        be reached without the points after it is searched: the search has to pass the next point if
        it reaches nothing behind that.
        """
        way = self._way(self.entered(start), self.entered(node_id))
        place = {point: index for index, point in enumerate(way)}
        seen = set(way)
        always: set[int] = set()
        furthest = 0
        for index, first in enumerate(way):
            if furthest <= index:
                always.add(first)
            waiting = [first]
            while waiting:
                for point in self._next[waiting.pop()]:
                    furthest = max(furthest, place.get(point, 0))
                    if point not in seen:
                        seen.add(point)
                        waiting.append(point)
        return {name for name in self._number if self.left(name) in always}

    def _way(self, first: int, last: int) -> list[int]:
        """Return the points of one way between two points; empty if there is none."""
        came_from = {first: first}
        waiting = [first]
        for point in waiting:  # the list grows during the loop
            for target in self._next[point]:
                if target not in came_from:
                    came_from[target] = point
                    waiting.append(target)
        if last not in came_from:
            return []
        way = [last]
        while way[-1] != first:
            way.append(came_from[way[-1]])
        return way[::-1]

    def _components(self) -> tuple[list[int], list[list[int]]]:
        """Return the strongly connected component of each point, and the points of each.

        Components are in topological order (Kosaraju's algorithm).
        """
        before: list[list[int]] = [[] for _ in self._next]
        for point, targets in enumerate(self._next):
            for target in targets:
                before[target].append(point)
        component = [-1] * len(self._next)
        members: list[list[int]] = []
        for point in reversed(self._finishing_order()):
            if component[point] >= 0:
                continue
            component[point] = len(members)
            found = [point]
            for member in found:  # the list grows during the loop
                for cause in before[member]:
                    if component[cause] < 0:
                        component[cause] = len(members)
                        found.append(cause)
            members.append(found)
        return component, members

    def _finishing_order(self) -> list[int]:
        """Return the points in the order in which a depth-first search leaves them."""
        done: list[int] = []
        seen = [False] * len(self._next)
        for first in range(len(self._next)):
            if seen[first]:
                continue
            seen[first] = True
            open_points = [(first, iter(self._next[first]))]
            while open_points:
                point, targets = open_points[-1]
                target = next((target for target in targets if not seen[target]), None)
                if target is None:
                    done.append(point)
                    open_points.pop()
                else:
                    seen[target] = True
                    open_points.append((target, iter(self._next[target])))
        return done
