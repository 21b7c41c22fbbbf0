"""Looks up the references of a step.

- A step sees the outputs of earlier steps in its own frame and in the frames around it, the
  workflow's `globals`, and its `inputs` (also under the older name `__inputs`).
- A called workflow sees only what was passed to it.
- Outside a parallel, a node in a branch can be referenced by its bare id if exactly one branch
  produced it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.template import MISSING, Missing, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.engine.graph import Graph
    from infloop.engine.state import Frame, Scope, State
    from infloop.model.values import JsonObject, JsonValue


def owner(state: State, frame: Frame) -> Frame:
    """Return the frame whose scope `frame` writes to."""
    while frame.scope is None:
        frame = state.frames[state.steps[frame.container].frame]
    return frame


class FrameScope:
    """The scope of one frame."""

    __slots__ = ("_frame", "_graph", "_state")

    def __init__(self, state: State, frame: Frame, graph: Graph) -> None:
        self._state = state
        self._frame = frame
        self._graph = graph

    def lookup(self, path: Sequence[str]) -> JsonValue | Missing:
        """Return the value under `path`, or MISSING."""
        head, rest = path[0], path[1:]
        frames, steps, frame = self._state.frames, self._state.steps, self._frame
        while True:  # as `_visible` goes; a generator would be a sixth of the time of a lookup
            scope = frame.scope
            if scope is not None and head in scope:
                return walk(dict(scope[head]) if not rest else scope[head], rest)
            if frame.inputs is not None:
                break
            frame = frames[steps[frame.container].frame]
        if head in ("inputs", "__inputs"):
            return walk(frame.inputs, rest)
        if head == "globals":
            return walk(self._graph.globals, rest)
        return self._inside_parallel(head, rest)

    def _visible(self) -> Iterator[Frame]:
        """Yield this frame and those around it, within the same workflow."""
        frame = self._frame
        while True:
            yield frame
            if frame.inputs is not None:
                return
            frame = self._state.frames[self._state.steps[frame.container].frame]

    def _inside_parallel(self, head: str, rest: Sequence[str]) -> JsonValue | Missing:
        """Return the one value that a finished branch produced under the bare id `head`."""
        containers = self._graph.parallels_around.get(head, ())
        if not containers:
            return MISSING
        found: list[JsonObject] = []
        for frame in self._visible():
            if frame.scope is not None:
                found.extend(_produced(frame.scope, containers, head))
        return walk(found[0], rest) if len(found) == 1 else MISSING


def _produced(scope: Scope, containers: Sequence[str], node: str) -> Iterator[JsonObject]:
    """Yield the outputs of `node` in the branches of the outermost container in `scope`."""
    for index, container in enumerate(containers):
        children = scope.get(container, {}).get("children")
        if not isinstance(children, dict):
            continue
        for branch in children.values():
            outputs = branch.get("outputs") if isinstance(branch, dict) else None
            if not isinstance(outputs, dict):
                continue
            own = outputs.get(node)
            if isinstance(own, dict):
                yield own
            else:
                yield from _produced(outputs, containers[index + 1 :], node)  # type: ignore[arg-type]
        return
